#include "range.h"

#include <stdlib.h>

uint64_t range_alloc(range_space *s, uint64_t n, uint64_t align)
{
	uint64_t end = s->base + s->size, at = (s->base + align - 1) & ~(align - 1);
	range **link = &s->used;
	for (; *link; link = &(*link)->next) {
		if (at < (*link)->at && n <= (*link)->at - at)
			break;
		uint64_t after = (*link)->at + (*link)->size;
		if (at < after)
			at = (after + align - 1) & ~(align - 1);
	}
	if (n == 0 || at > end || n > end - at)
		return ~0ull;
	range *r = malloc(sizeof *r);
	if (!r)
		return ~0ull;
	*r = (range){at, n, *link};
	*link = r;
	s->taken += n;
	return at;
}

void range_free(range_space *s, uint64_t at)
{
	for (range **link = &s->used; *link; link = &(*link)->next)
		if ((*link)->at == at) {
			range *r = *link;
			*link = r->next;
			s->taken -= r->size;
			free(r);
			return;
		}
}

void range_clear(range_space *s)
{
	while (s->used)
		range_free(s, s->used->at);
}
