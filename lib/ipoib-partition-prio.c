/*
 * Licensed under the Apache License, Version 2.0 (the "License");
 * you may not use this file except in compliance with the License.
 * You may obtain a copy of the License at:
 *
 *     http://www.apache.org/licenses/LICENSE-2.0
 *
 * Unless required by applicable law or agreed to in writing, software
 * distributed under the License is distributed on an "AS IS" BASIS,
 * WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
 * See the License for the specific language governing permissions and
 * limitations under the License.
 */

#include <config.h>
#include "ipoib-partition-private.h"

#include "ovs-rcu.h"
#include "util.h"

/* Classes of options:prio-map.
 *
 * A path of a class is a path of its own, which the SA is asked for with the
 * service level that is wanted: what it does not grant is not sent with.  Each
 * neighbour that has a path has one for each class as well; as long as such a
 * path is not there, or takes less than the ordinary one, the data path uses
 * the ordinary one.  A class that was refused is asked for again whenever the
 * ordinary paths are. */

/* A neighbour's path of a class. */
struct prio_link {
    struct ovs_list node;       /* In 'aux' of the path. */
    struct ipoib_neigh *neigh;
    unsigned int class;
    struct ipoib_path *path;
};

/* In 'prio' of struct ipoib_neigh_more. */
struct neigh_prio {
    struct ipoib_neigh_ahs *ahs; /* What the data path reads. */
    struct prio_link links[IPOIB_MAX_CLASSES];
};

static struct neigh_prio *
prio_of(const struct ipoib_neigh *neigh)
{
    return neigh->more ? neigh->more->prio : NULL;
}

static uint32_t
prio_path_mtu(const struct ipoib_partition *part,
              const struct ipoib_path *path)
{
    return MIN(ipoib_partition_mtu(part),
               ib_mtu_bytes(path->mtu) - IPOIB_HEADER_LEN);
}

static void
prio_publish(struct ipoib_partition *part, struct prio_link *link)
{
    struct neigh_prio *prio = link->neigh->more->prio;
    struct ibv_ah *ah = link->path->ah;

    if (ah && (prio_path_mtu(part, link->path)
               < ipoib_neigh_fast(part->shared.neighs,
                                  link->neigh->slot)->mtu)) {
        ah = NULL;
    }
    atomic_store_explicit(&prio->ahs->ah[link->class], ah,
                          memory_order_release);
}

static void
prio_path_changed(void *part, struct ipoib_path *path)
{
    struct ovs_list *links = path->aux;
    struct prio_link *link;

    if (links) {
        LIST_FOR_EACH (link, node, links) {
            prio_publish(part, link);
        }
    }
}

void
ipoib_partition_prio_republish(struct ipoib_partition *part,
                               struct ipoib_neigh *neigh)
{
    struct neigh_prio *prio = prio_of(neigh);

    if (prio) {
        for (unsigned int i = 1; i <= part->prio.n; i++) {
            prio_publish(part, &prio->links[i]);
        }
    }
}

void
ipoib_partition_prio_link(struct ipoib_partition *part,
                          struct ipoib_neigh *neigh)
{
    struct neigh_prio *prio;

    if (!part->prio.n || prio_of(neigh)) {
        return;
    }
    ipoib_neigh_more(neigh)->prio = prio = xzalloc(sizeof *prio);
    prio->ahs = xmalloc(sizeof *prio->ahs);
    for (unsigned int i = 0; i < IPOIB_MAX_CLASSES; i++) {
        atomic_init(&prio->ahs->ah[i], NULL);
    }
    for (unsigned int i = 1; i <= part->prio.n; i++) {
        struct prio_link *link = &prio->links[i];

        link->neigh = neigh;
        link->class = i;
        link->path = ipoib_path_ref(part->prio_paths[i], &neigh->addr.gid);
        if (!link->path->aux) {
            ovs_list_init(link->path->aux = xmalloc(sizeof link->node));
        }
        ovs_list_push_back(link->path->aux, &link->node);
        prio_publish(part, link);
    }
    ipoib_neigh_set_ahs(part->shared.neighs, neigh, prio->ahs);
}

void
ipoib_partition_prio_unlink(struct ipoib_partition *part,
                            struct ipoib_neigh *neigh)
{
    struct neigh_prio *prio = prio_of(neigh);

    if (!prio) {
        return;
    }
    ipoib_neigh_set_ahs(part->shared.neighs, neigh, NULL);
    for (unsigned int i = 1; i <= part->prio.n; i++) {
        struct prio_link *link = &prio->links[i];

        ovs_list_remove(&link->node);
        if (ovs_list_is_empty(link->path->aux)) {
            free(link->path->aux);
            link->path->aux = NULL;
        }
        ipoib_path_unref(link->path);
    }
    ovsrcu_postpone(free, prio->ahs);
    free(prio);
    neigh->more->prio = NULL;
    ipoib_neigh_trim(neigh);
}

static void
prio_link_if_used(struct ipoib_neigh *neigh, void *part)
{
    if (neigh->path) {
        ipoib_partition_prio_link(part, neigh);
    }
}

static void
prio_unlink_any(struct ipoib_neigh *neigh, void *part)
{
    ipoib_partition_prio_unlink(part, neigh);
}

void
ipoib_partition_prio_configure(struct ipoib_partition *part,
                               const struct ipoib_prio_map *map)
    OVS_NO_THREAD_SAFETY_ANALYSIS
{
    size_t pos = 0;

    if (!memcmp(&part->prio, map, sizeof *map)) {
        return;
    }
    ipoib_neigh_walk(part->shared.neighs, &pos, SIZE_MAX, prio_unlink_any,
                     part);
    ipoib_partition_prio_destroy(part);
    part->prio = *map;
    for (unsigned int i = 1; i <= map->n; i++) {
        part->prio_paths[i] = ipoib_path_table_create(
            part->hca->verbs, part->hca->pd, part->port->sa,
            part->hca->reaper, prio_path_changed, part);
    }
    ipoib_partition_set_path_params(part);
    pos = 0;
    ipoib_neigh_walk(part->shared.neighs, &pos, SIZE_MAX, prio_link_if_used,
                     part);
}

void
ipoib_partition_prio_destroy(struct ipoib_partition *part)
{
    for (unsigned int i = 1; i <= part->prio.n; i++) {
        ipoib_path_table_destroy(part->prio_paths[i]);
        part->prio_paths[i] = NULL;
    }
    part->prio.n = 0;
}

void
ipoib_partition_prio_set_params(struct ipoib_partition *part,
                                const struct ipoib_path_params *params_)
{
    for (unsigned int i = 1; i <= part->prio.n; i++) {
        struct ipoib_path_params params = *params_;

        params.wants_sl = part->prio.classes[i].sl >= 0;
        params.sl = MAX(part->prio.classes[i].sl, 0);
        params.sets_tclass = part->prio.classes[i].tclass >= 0;
        params.grh_tclass = MAX(part->prio.classes[i].tclass, 0);
        ipoib_path_table_set_params(part->prio_paths[i], &params);
    }
}

void
ipoib_partition_prio_refresh(struct ipoib_partition *part)
{
    for (unsigned int i = 1; i <= part->prio.n; i++) {
        ipoib_path_refresh_all(part->prio_paths[i]);
    }
}

void
ipoib_partition_prio_run(struct ipoib_partition *part, long long int now)
{
    for (unsigned int i = 1; i <= part->prio.n; i++) {
        ipoib_path_table_run(part->prio_paths[i], now);
    }
}

void
ipoib_partition_prio_wait(const struct ipoib_partition *part)
{
    for (unsigned int i = 1; i <= part->prio.n; i++) {
        ipoib_path_table_wait(part->prio_paths[i]);
    }
}
