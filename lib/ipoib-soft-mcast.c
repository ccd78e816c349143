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
#include "ipoib-soft-private.h"

#include <errno.h>
#include "hash.h"
#include "util.h"

/* Attachments of queue pairs to multicast groups in the software HCA.
 *
 * An attachment holds for the MGID, whatever its LID: groups may share a
 * LID, and the LID of a group may change. */

static uint32_t
mgid_hash(const struct ib_gid *mgid)
{
    return hash_bytes(mgid, sizeof *mgid, 0);
}

static struct soft_group *
group_find(const struct soft_hca *hca, const struct ib_gid *mgid)
{
    struct soft_group *g;

    CMAP_FOR_EACH_WITH_HASH (g, node, mgid_hash(mgid), &hca->groups) {
        if (!memcmp(&g->mgid, mgid, sizeof *mgid)) {
            return g;
        }
    }
    return NULL;
}

const struct soft_group_qps *
soft_mcast_find(const struct soft_hca *hca, const struct ib_gid *mgid)
{
    struct soft_group *g = group_find(hca, mgid);

    return g ? ovsrcu_get(struct soft_group_qps *, &g->qps) : NULL;
}

/* Gives 'g' the set 'new', or takes 'g' away if that is empty. */
static void
group_set(struct soft_hca *hca, struct soft_group *g,
          struct soft_group_qps *new)
    OVS_REQUIRES(hca->mutex)
{
    ovsrcu_postpone(free, ovsrcu_get_protected(struct soft_group_qps *,
                                               &g->qps));
    ovsrcu_set(&g->qps, new);
    if (!new->n) {
        cmap_remove(&hca->groups, &g->node, mgid_hash(&g->mgid));
        hca->n_groups--;
        ovsrcu_postpone(free, new);
        ovsrcu_postpone(free, g);
    }
}

/* Takes 'qp' out of 'g'.  Returns false if it is not in it. */
static bool
group_remove(struct soft_hca *hca, struct soft_group *g,
             const struct soft_qp *qp)
    OVS_REQUIRES(hca->mutex)
{
    const struct soft_group_qps *old
        = ovsrcu_get_protected(struct soft_group_qps *, &g->qps);
    struct soft_group_qps *new;
    size_t i;

    for (i = 0; i < old->n && old->qps[i] != qp; i++) {
        continue;
    }
    if (i == old->n) {
        return false;
    }
    new = xmalloc(sizeof *new + old->n * sizeof new->qps[0]);
    new->n = old->n - 1;
    memcpy(new->qps, old->qps, i * sizeof new->qps[0]);
    memcpy(new->qps + i, old->qps + i + 1,
           (old->n - i - 1) * sizeof new->qps[0]);
    group_set(hca, g, new);
    return true;
}

static bool
attach__(struct soft_hca *hca, struct soft_qp *qp, const struct ib_gid *mgid)
    OVS_REQUIRES(hca->mutex)
{
    struct soft_group *g = group_find(hca, mgid);
    struct soft_group_qps *old, *new;

    if (!g) {
        if (hca->n_groups >= SOFT_MAX_GROUPS) {
            return false;
        }
        g = xzalloc(sizeof *g);
        g->mgid = *mgid;
        old = xzalloc(sizeof *old);
        ovsrcu_init(&g->qps, old);
        cmap_insert(&hca->groups, &g->node, mgid_hash(mgid));
        hca->n_groups++;
    }
    old = ovsrcu_get_protected(struct soft_group_qps *, &g->qps);
    for (size_t i = 0; i < old->n; i++) {
        if (old->qps[i] == qp) {
            return true;
        }
    }
    new = xmalloc(sizeof *new + (old->n + 1) * sizeof new->qps[0]);
    new->n = old->n + 1;
    memcpy(new->qps, old->qps, old->n * sizeof new->qps[0]);
    new->qps[old->n] = qp;
    group_set(hca, g, new);
    qp->n_attached++;
    return true;
}

int
soft_attach_mcast(struct ibv_qp *qp_, const union ibv_gid *gid,
                  uint16_t lid OVS_UNUSED)
{
    struct soft_hca *hca = soft_hca_cast(qp_->context);
    struct ib_gid mgid;
    bool ok;

    if (gid->raw[0] != 0xff) {
        return EINVAL;
    }
    memcpy(&mgid, gid, sizeof mgid);
    ovs_mutex_lock(&hca->mutex);
    ok = attach__(hca, soft_qp_cast(qp_), &mgid);
    ovs_mutex_unlock(&hca->mutex);
    return ok ? 0 : ENOMEM;
}

int
soft_detach_mcast(struct ibv_qp *qp_, const union ibv_gid *gid,
                  uint16_t lid OVS_UNUSED)
{
    struct soft_hca *hca = soft_hca_cast(qp_->context);
    struct soft_qp *qp = soft_qp_cast(qp_);
    struct soft_group *g;
    struct ib_gid mgid;
    int error = EINVAL;

    memcpy(&mgid, gid, sizeof mgid);
    ovs_mutex_lock(&hca->mutex);
    g = group_find(hca, &mgid);
    if (g && group_remove(hca, g, qp)) {
        qp->n_attached--;
        error = 0;
    }
    ovs_mutex_unlock(&hca->mutex);
    return error;
}

/* Detaches 'qp' from every group. */
void
soft_mcast_detach_all(struct soft_hca *hca, struct soft_qp *qp)
{
    struct soft_group *g;

    CMAP_FOR_EACH (g, node, &hca->groups) {
        if (!qp->n_attached) {
            break;
        }
        if (group_remove(hca, g, qp)) {
            qp->n_attached--;
        }
    }
}
