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

#ifndef IPOIB_PROOF_PRIVATE_H
#define IPOIB_PROOF_PRIVATE_H 1

/* What the files of ipoib-proof.h share. */

#include "ipoib-proof.h"

/* What is not back after so many ms is lost. */
#define IPOIB_PROOF_TIMEOUT 1000

/* A queue pair that sends to itself (ipoib-proof-loop.c). */
struct ipoib_proof_loop {
    struct ipoib_proof_params params;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_ah *ah;
    struct ibv_mr *mr;
    void *mem;                  /* That the device reads and writes. */
};

/* 'size' is that of 'mem', which is zeroed; if 'tso', it takes IBV_WR_TSO.  0
 * or a positive errno value; to be closed in any case. */
int ipoib_proof_loop_open(struct ipoib_proof_loop *,
                          const struct ipoib_proof_params *, size_t size,
                          unsigned int n_send, unsigned int n_recv, bool tso);
void ipoib_proof_loop_close(struct ipoib_proof_loop *);
/* 'buf', in 'mem', receives a packet, as request 'id'. */
int ipoib_proof_loop_recv(struct ipoib_proof_loop *, uint64_t id, void *buf,
                          size_t size);
/* Sends 'len' bytes at 'buf', in 'mem', as 'wr' says; the rest of it, but for
 * 'wr_id', is set here.  The data of IBV_WR_TSO is in two pieces, as that of
 * transmit queues may be. */
int ipoib_proof_loop_send(struct ipoib_proof_loop *, struct ibv_send_wr *wr,
                          const void *buf, size_t len);
/* Takes a completion: of a send, whatever its status, or of a receive that has
 * got a packet of ours, of which there is at least an IPoIB header. */
bool ipoib_proof_loop_poll(struct ipoib_proof_loop *, struct ibv_wc *);

/* The trial of segmentation (ipoib-proof-tso.c).  NULL if it cannot begin. */
struct ipoib_proof_tso *ipoib_proof_tso_create(
    const struct ipoib_proof_params *);
void ipoib_proof_tso_destroy(struct ipoib_proof_tso *);
/* True when it is over.  'lost' says that packets were, with no other
 * failure. */
bool ipoib_proof_tso_run(struct ipoib_proof_tso *,
                         struct ipoib_proof_params *,
                         struct ipoib_proof_verdict *, bool *lost);

#endif /* ipoib-proof-private.h */
