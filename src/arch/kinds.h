/* kinds.h - the few ways in which models differ in kind, not in number. */
#ifndef ARCH_KINDS_H
#define ARCH_KINDS_H

typedef enum { ATTN_GQA, ATTN_MLA } AttnKind;
typedef enum { ROUTE_NONE, ROUTE_SOFTMAX, ROUTE_SIGMOID } RouteKind;
typedef enum { ROPE_DEFAULT, ROPE_LINEAR, ROPE_LLAMA3, ROPE_YARN, ROPE_SECTIONS } RopeKind;

#endif
