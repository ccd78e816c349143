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
#include "ipoib-verbs.h"

#include <string.h>

/* What is the same for every table of verbs. */

const struct ipoib_verbs *
ipoib_verbs_for_device(const char *name)
{
    return (ipoib_soft_name_parse(name, NULL) ? &ipoib_verbs_soft
            : &ipoib_verbs_hw);
}

uint32_t
ipoib_verbs_max_tso(const struct ipoib_verbs *v, struct ibv_context *ctx)
{
    return v->max_tso ? v->max_tso(ctx) : 0;
}

int
ipoib_verbs_ud_start(const struct ipoib_verbs *v, struct ibv_qp *qp,
                     const struct ipoib_ud_params *p)
{
    struct ibv_qp_attr attr;
    int error;

    memset(&attr, 0, sizeof attr);
    attr.qp_state = IBV_QPS_INIT;
    attr.pkey_index = p->pkey_index;
    attr.port_num = p->port;
    attr.qkey = p->qkey;
    error = v->modify_qp(qp, &attr, (IBV_QP_STATE | IBV_QP_PKEY_INDEX
                                     | IBV_QP_PORT | IBV_QP_QKEY));
    if (!error) {
        attr.qp_state = IBV_QPS_RTR;
        error = v->modify_qp(qp, &attr, IBV_QP_STATE);
    }
    if (!error) {
        attr.qp_state = IBV_QPS_RTS;
        attr.sq_psn = 0;
        error = v->modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
    }
    return error;
}

int
ipoib_verbs_ud_restart(const struct ipoib_verbs *v, struct ibv_qp *qp,
                       const struct ipoib_ud_params *p)
{
    struct ibv_qp_attr attr;
    int error;

    memset(&attr, 0, sizeof attr);
    attr.qp_state = IBV_QPS_RESET;
    error = v->modify_qp(qp, &attr, IBV_QP_STATE);
    return error ? error : ipoib_verbs_ud_start(v, qp, p);
}

int
ipoib_verbs_ud_to_error(const struct ipoib_verbs *v, struct ibv_qp *qp)
{
    struct ibv_qp_attr attr;

    memset(&attr, 0, sizeof attr);
    attr.qp_state = IBV_QPS_ERR;
    return v->modify_qp(qp, &attr, IBV_QP_STATE);
}
