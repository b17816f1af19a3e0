def compute_score(:
