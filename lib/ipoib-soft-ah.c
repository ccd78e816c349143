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

/* Address handles of the software HCA. */

struct ibv_ah *
soft_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
    struct soft_hca *hca = soft_hca_cast(pd->context);
    struct soft_ah *ah;

    if (attr->port_num != 1 || attr->sl > 15
        || (attr->is_global && attr->grh.sgid_index)) {
        errno = EINVAL;
        return NULL;
    }

    ah = xzalloc(sizeof *ah);
    ah->ah.context = pd->context;
    ah->ah.pd = pd;
    ah->attr = *attr;
    if (attr->is_global) {
        put_16aligned_be32(&ah->grh.vtf,
                           htonl(6u << 28 | attr->grh.traffic_class << 20
                                 | (attr->grh.flow_label & 0xfffff)));
        ah->grh.nxthdr = IB_GRH_NXTHDR;
        ah->grh.hoplimit = attr->grh.hop_limit;
        memcpy(&ah->grh.dgid, &attr->grh.dgid, sizeof ah->grh.dgid);
    }

    ovs_mutex_lock(&hca->mutex);
    soft_pd_ref(pd);
    ovs_list_push_back(&hca->ah_list, &ah->node);
    ovs_mutex_unlock(&hca->mutex);
    return &ah->ah;
}

int
soft_destroy_ah(struct ibv_ah *ah_)
{
    struct soft_hca *hca = soft_hca_cast(ah_->context);
    struct soft_ah *ah = CONTAINER_OF(ah_, struct soft_ah, ah);

    ovs_mutex_lock(&hca->mutex);
    soft_pd_unref(ah_->pd);
    ovs_list_remove(&ah->node);
    ovs_mutex_unlock(&hca->mutex);
    free(ah);
    return 0;
}
