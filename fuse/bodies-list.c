/* SPDX-License-Identifier: Apache-2.0 */
/* What a directory has of bodies, and what a body is called: reads names under the bodies' lock,
 * changes none. */
#include "fuse/internal.h"

static bool is_visible(const struct hc_body *body)
{
	return body->state == HC_B_TEMPORARY || body->state == HC_B_SHOWN ||
	       body->state == HC_B_SHARED;
}

static void list_add(struct hc_body ***list, size_t *n, size_t *room, struct hc_body *body)
{
	if (*n == *room) {
		size_t more = *room ? *room * 2 : 16;
		struct hc_body **grown = reallocarray(*list, more, sizeof(*grown));

		if (!grown)
			return; /* a shorter listing */
		*list = grown;
		*room = more;
	}
	(*list)[(*n)++] = hc_body_get(body);
}

/* One body for each name (the newest that was opened), as a listing shows names once. dir 0: all
 * directories. */
int hc_bodies_list(struct hc_fs *fs, uint32_t dir, struct hc_body ***list_p, size_t *n_p)
{
	struct hc_bodies *bodies = &fs->bodies;
	struct hc_body **list = NULL;
	size_t n = 0, room = 0;

	pthread_mutex_lock(&bodies->lock);
	for (uint32_t i = 0; bodies->n_temporaries + bodies->n_shown && i < HC_BODIES_BUCKETS;
	     i++) {
		for (struct hc_bname *name = bodies->buckets[i]; name; name = name->next) {
			struct hc_body *body = name->shown ? name->shown : name->made;

			while (body && body->pending_tid)
				body = body->next;
			if (name->dir == dir && body && is_visible(body))
				list_add(&list, &n, &room, body);
		}
	}
	pthread_mutex_unlock(&bodies->lock);
	*list_p = list;
	*n_p = n;
	return 0;
}

uint32_t hc_bodies_count_dir(struct hc_fs *fs, uint32_t dir)
{
	struct hc_bodies *bodies = &fs->bodies;
	uint32_t n = 0;

	pthread_mutex_lock(&bodies->lock);
	for (uint32_t i = 0; bodies->n_bodies && i < HC_BODIES_BUCKETS; i++)
		for (struct hc_bname *name = bodies->buckets[i]; name; name = name->next)
			n += name->dir == dir && (name->made || name->shown || name->n_settling);
	pthread_mutex_unlock(&bodies->lock);
	return n;
}

bool hc_body_name(struct hc_fs *fs, struct hc_body *body, uint32_t *dir_p, char name[HC_NAME_BYTES])
{
	bool named;

	pthread_mutex_lock(&fs->bodies.lock);
	named = body->name != NULL;
	if (named) {
		*dir_p = body->name->dir;
		snprintf(name, HC_NAME_BYTES, "%s", body->name->text);
	}
	pthread_mutex_unlock(&fs->bodies.lock);
	return named;
}
