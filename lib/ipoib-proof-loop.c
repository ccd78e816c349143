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
#include "ipoib-proof-private.h"

#include <errno.h>
#include <string.h>
#include "ipoib-packet.h"
#include "util.h"

int
ipoib_proof_loop_open(struct ipoib_proof_loop *loop,
                      const struct ipoib_proof_params *params, size_t size,
                      unsigned int n_send, unsigned int n_recv, bool tso)
{
    const struct ipoib_verbs *verbs = params->verbs;
    struct ibv_qp_init_attr init = {
        .qp_type = IBV_QPT_UD,
        .sq_sig_all = 1,
        .cap = { .max_send_wr = n_send, .max_recv_wr = n_recv,
                 .max_send_sge = tso ? 2 : 1, .max_recv_sge = 1 },
    };
    struct ibv_ah_attr attr = {
        .dlid = params->lid,
        .port_num = params->ud.port,
        .is_global = params->needs_grh,
    };

    memset(loop, 0, sizeof *loop);
    loop->params = *params;
    loop->mem = xzalloc_cacheline(size);
    loop->mr = verbs->reg_mr(params->pd, loop->mem, size,
                             IBV_ACCESS_LOCAL_WRITE);
    loop->cq = loop->mr ? verbs->create_cq(params->ctx, n_send + n_recv, NULL,
                                           NULL, 0) : NULL;
    if (!loop->cq) {
        return errno;
    }
    init.send_cq = init.recv_cq = loop->cq;
    loop->qp = (tso ? verbs->create_tso_qp(params->pd, &init)
                : verbs->create_qp(params->pd, &init, false));
    memcpy(attr.grh.dgid.raw, params->gid.raw, IB_GID_LEN);
    loop->ah = loop->qp ? verbs->create_ah(params->pd, &attr) : NULL;
    return (loop->ah ? ipoib_verbs_ud_start(verbs, loop->qp, &params->ud)
            : errno);
}

void
ipoib_proof_loop_close(struct ipoib_proof_loop *loop)
{
    const struct ipoib_verbs *verbs = loop->params.verbs;

    if (loop->qp) {
        verbs->destroy_qp(loop->qp);
    }
    if (loop->ah) {
        verbs->destroy_ah(loop->ah);
    }
    if (loop->cq) {
        verbs->destroy_cq(loop->cq);
    }
    if (loop->mr) {
        verbs->dereg_mr(loop->mr);
    }
    free_cacheline(loop->mem);
}

int
ipoib_proof_loop_recv(struct ipoib_proof_loop *loop, uint64_t id, void *buf,
                      size_t size)
{
    struct ibv_sge sge = {
        .addr = (uintptr_t) buf,
        .length = size,
        .lkey = loop->mr->lkey,
    };
    struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 };
    struct ibv_recv_wr *bad;

    return ibv_post_recv(loop->qp, &wr, &bad);
}

int
ipoib_proof_loop_send(struct ipoib_proof_loop *loop, struct ibv_send_wr *wr,
                      const void *buf, size_t len)
{
    size_t first = wr->opcode == IBV_WR_TSO ? len / 2 : len;
    struct ibv_sge sges[2] = {
        {
            .addr = (uintptr_t) buf,
            .length = first,
            .lkey = loop->mr->lkey,
        }, {
            .addr = (uintptr_t) buf + first,
            .length = len - first,
            .lkey = loop->mr->lkey,
        },
    };
    struct ibv_send_wr *bad;

    wr->next = NULL;
    wr->sg_list = sges;
    wr->num_sge = first < len ? 2 : 1;
    wr->wr.ud.ah = loop->ah;
    wr->wr.ud.remote_qpn = loop->qp->qp_num;
    wr->wr.ud.remote_qkey = loop->params.ud.qkey;
    return ibv_post_send(loop->qp, wr, &bad);
}

bool
ipoib_proof_loop_poll(struct ipoib_proof_loop *loop, struct ibv_wc *wc)
{
    while (ibv_poll_cq(loop->cq, 1, wc) > 0) {
        /* Of a failure, little else is valid. */
        if (wc->status != IBV_WC_SUCCESS || wc->opcode != IBV_WC_RECV
            || (wc->byte_len >= IB_GRH_LEN + IPOIB_HEADER_LEN
                && wc->src_qp == loop->qp->qp_num)) {
            return true;
        }
    }
    return false;
}
