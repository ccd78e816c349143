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
#include "util.h"

/* Protection domains and memory regions of the software HCA.
 *
 * A local key is the region's index in the table (24 bits) and a generation
 * (8 bits), so that the key of a region that is gone is not that of the next
 * one in its place. */

struct ibv_pd *
soft_alloc_pd(struct ibv_context *ctx)
{
    struct soft_hca *hca = soft_hca_cast(ctx);
    struct soft_pd *pd = xzalloc(sizeof *pd);

    pd->pd.context = ctx;
    ovs_mutex_lock(&hca->mutex);
    ovs_list_push_back(&hca->pd_list, &pd->node);
    ovs_mutex_unlock(&hca->mutex);
    return &pd->pd;
}

int
soft_dealloc_pd(struct ibv_pd *pd_)
{
    struct soft_hca *hca = soft_hca_cast(pd_->context);
    struct soft_pd *pd = CONTAINER_OF(pd_, struct soft_pd, pd);

    ovs_mutex_lock(&hca->mutex);
    if (pd->n_refs) {
        ovs_mutex_unlock(&hca->mutex);
        return EBUSY;
    }
    ovs_list_remove(&pd->node);
    ovs_mutex_unlock(&hca->mutex);
    free(pd);
    return 0;
}

/* Doubles the table of regions. */
static struct soft_mr_table *
mr_table_grow(struct soft_hca *hca)
    OVS_REQUIRES(hca->mutex)
{
    struct soft_mr_table *old = ovsrcu_get_protected(struct soft_mr_table *,
                                                     &hca->mrs);
    size_t n = old ? 2 * old->n : 64;
    struct soft_mr_table *new = xzalloc(sizeof *new + n * sizeof new->mrs[0]);

    new->n = n;
    for (size_t i = 0; old && i < old->n; i++) {
        ovsrcu_init(&new->mrs[i],
                    ovsrcu_get_protected(struct soft_mr *, &old->mrs[i]));
    }
    ovsrcu_set(&hca->mrs, new);
    if (old) {
        ovsrcu_postpone(free, old);
    }
    return new;
}

/* An index of the table that is free. */
static uint32_t
mr_index(struct soft_hca *hca)
    OVS_REQUIRES(hca->mutex)
{
    struct soft_mr_table *t = ovsrcu_get_protected(struct soft_mr_table *,
                                                   &hca->mrs);
    uint32_t n_old = t ? t->n : 0;

    for (uint32_t i = 0; i < n_old; i++) {
        uint32_t idx = (hca->mr_hint + i) % n_old;

        if (idx && !ovsrcu_get_protected(struct soft_mr *, &t->mrs[idx])) {
            return idx;
        }
    }
    mr_table_grow(hca);
    return MAX(n_old, 1);       /* 0 is never used: no key is 0. */
}

struct ibv_mr *
soft_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
    struct soft_hca *hca = soft_hca_cast(pd->context);
    struct soft_mr_table *t;
    struct soft_mr *mr;
    uint32_t idx;

    if ((uintptr_t) addr + length < (uintptr_t) addr
        || (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)
            && !(access & IBV_ACCESS_LOCAL_WRITE))) {
        errno = EINVAL;
        return NULL;
    }

    mr = xzalloc(sizeof *mr);
    mr->mr.context = pd->context;
    mr->mr.pd = pd;
    mr->mr.addr = addr;
    mr->mr.length = length;
    mr->start = (uintptr_t) addr;
    mr->length = length;
    mr->access = access;

    ovs_mutex_lock(&hca->mutex);
    if (hca->n_mrs >= SOFT_MAX_MR) {
        ovs_mutex_unlock(&hca->mutex);
        free(mr);
        errno = ENOMEM;
        return NULL;
    }
    idx = mr_index(hca);
    hca->mr_hint = idx + 1;
    hca->n_mrs++;
    mr->mr.handle = idx;
    mr->mr.lkey = mr->mr.rkey = idx << 8 | hca->mr_generation++;
    t = ovsrcu_get_protected(struct soft_mr_table *, &hca->mrs);
    ovsrcu_set(&t->mrs[idx], mr);
    ovs_list_push_back(&hca->mr_list, &mr->node);
    soft_pd_ref(pd);
    ovs_mutex_unlock(&hca->mutex);
    return &mr->mr;
}

int
soft_dereg_mr(struct ibv_mr *mr_)
{
    struct soft_hca *hca = soft_hca_cast(mr_->context);
    struct soft_mr *mr = CONTAINER_OF(mr_, struct soft_mr, mr);
    struct soft_mr_table *t;
    struct soft_qp *qp;

    ovs_mutex_lock(&hca->mutex);
    t = ovsrcu_get_protected(struct soft_mr_table *, &hca->mrs);
    ovsrcu_set(&t->mrs[mr_->handle], NULL);
    ovs_list_remove(&mr->node);
    soft_pd_unref(mr_->pd);
    hca->n_mrs--;

    /* Whoever copies from or to memory holds a mutex of a QP meanwhile. */
    LIST_FOR_EACH (qp, node, &hca->qp_list) {
        ovs_mutex_lock(&qp->sq_mutex);
        ovs_mutex_unlock(&qp->sq_mutex);
        ovs_mutex_lock(&qp->mutex);
        ovs_mutex_unlock(&qp->mutex);
    }
    ovs_mutex_unlock(&hca->mutex);
    ovsrcu_postpone(free, mr);
    return 0;
}

void
soft_mr_free_table(struct soft_hca *hca)
{
    free(ovsrcu_get_protected(struct soft_mr_table *, &hca->mrs));
}
