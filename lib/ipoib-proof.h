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

#ifndef IPOIB_PROOF_H
#define IPOIB_PROOF_H 1

/* Whether a device that claims to compute and check checksums of IP packets
 * (IBV_DEVICE_UD_IP_CSUM), or to cut TCP into segments (IBV_WR_TSO), does so
 * for ours: some drivers claim it for all queue pairs and do it for some
 * kinds, and one wrong answer would corrupt traffic silently.  So a queue pair
 * made for this sends packets to itself, with right and wrong checksums, and
 * what comes back decides; then long ones, if it computes checksums. */

#include <stdbool.h>
#include "ipoib-verbs.h"
#include "ipoib-wire.h"

struct ipoib_proof_params {
    const struct ipoib_verbs *verbs;
    struct ibv_context *ctx;
    struct ibv_pd *pd;
    struct ipoib_ud_params ud;
    uint16_t lid;               /* Own. */
    bool needs_grh;
    struct ib_gid gid;          /* Own, for the GRH. */
    uint32_t max_tso;           /* Not 0: segmentation is to be tried, and
                                 * 'verbs' has it. */
};

/* One thing that a device may do. */
struct ipoib_proof_verdict {
    bool proven;
    const char *reason;         /* Otherwise: a static string. */
};

struct ipoib_proof {
    struct ipoib_proof_verdict tx; /* IBV_SEND_IP_CSUM. */
    struct ipoib_proof_verdict rx; /* IBV_WC_IP_CSUM_OK. */
    struct ipoib_proof_verdict tso; /* IBV_WR_TSO with IBV_SEND_IP_CSUM. */
    struct ipoib_proof_trial *trial; /* Of checksums, or NULL. */
    struct ipoib_proof_tso *tso_trial; /* Of segmentation, or NULL. */
    unsigned int n_trials;      /* Of the same kind. */
};

/* Nothing is proven; 'reason' says why. */
void ipoib_proof_init(struct ipoib_proof *, const char *reason);
void ipoib_proof_destroy(struct ipoib_proof *);

/* Starts the trials, which are made again if packets are lost.
 * ipoib_proof_run() returns true when all is over, after some seconds at most;
 * ipoib_proof_wait() arranges for poll_block() to wake up when it has
 * something to do. */
void ipoib_proof_start(struct ipoib_proof *,
                       const struct ipoib_proof_params *);
bool ipoib_proof_is_running(const struct ipoib_proof *);
bool ipoib_proof_run(struct ipoib_proof *);
void ipoib_proof_wait(const struct ipoib_proof *);

#endif /* ipoib-proof.h */
