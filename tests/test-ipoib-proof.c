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
#undef NDEBUG
#include "ipoib-proof.h"

#include <errno.h>
#include <string.h>
#include "openvswitch/poll-loop.h"
#include "ovs-rcu.h"
#include "ovstest.h"
#include "timeval.h"
#include "util.h"

/* Whether a device's claims are believed, on software HCAs that tell the truth
 * or lie. */

static struct ipoib_proof_params
open_device(const char *name)
{
    const struct ipoib_verbs *verbs = ipoib_verbs_for_device(name);
    struct ipoib_proof_params params = { .verbs = verbs };
    struct ibv_port_attr port;
    union ibv_gid gid;

    params.ctx = verbs->open_device(name, NULL);
    ovs_assert(params.ctx);
    params.pd = verbs->alloc_pd(params.ctx);
    ovs_assert(!verbs->query_port(params.ctx, 1, &port));
    ovs_assert(port.state == IBV_PORT_ACTIVE);
    ovs_assert(!verbs->query_gid(params.ctx, 1, 0, &gid));
    memcpy(&params.gid, &gid, sizeof params.gid);
    params.lid = port.lid;
    params.ud = (struct ipoib_ud_params) { .port = 1, .qkey = 0xb1b };
    params.max_tso = ipoib_verbs_max_tso(verbs, params.ctx);
    return params;
}

static void
close_device(const struct ipoib_proof_params *params)
{
    ovs_assert(!params->verbs->dealloc_pd(params->pd));
    ovs_assert(!params->verbs->close_device(params->ctx));
}

/* In place of 'create_tso_qp'. */

static struct ibv_qp *
create_plain_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    return ipoib_verbs_soft.create_qp(pd, attr, false);
}

static struct ibv_qp *
create_no_qp(struct ibv_pd *pd OVS_UNUSED,
             struct ibv_qp_init_attr *attr OVS_UNUSED)
{
    errno = ENOMEM;
    return NULL;
}

/* What such a queue pair sends goes astray. */
static unsigned int n_astray;

static struct ibv_qp *
create_qp_astray(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    n_astray++;
    return ipoib_verbs_soft.create_tso_qp(pd, attr);
}

static struct ibv_ah *
create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
    attr->dlid = n_astray ? 0x777 : attr->dlid;
    return ipoib_verbs_soft.create_ah(pd, attr);
}

static void
run(struct ipoib_proof *proof)
{
    while (!ipoib_proof_run(proof)) {
        ipoib_proof_wait(proof);
        poll_block();
    }
}

/* The reasons are those of what is not believed, NULL: it is. */
static void
check_device(const char *name, bool claims, const char *tx, const char *rx,
             const char *tso)
{
    struct ipoib_proof_params params = open_device(name);
    struct ibv_device_attr attr;
    struct ipoib_proof proof;

    ovs_assert(!params.verbs->query_device(params.ctx, &attr));
    ovs_assert(!!(attr.device_cap_flags & IBV_DEVICE_UD_IP_CSUM) == claims);
    ipoib_proof_init(&proof, "not yet");
    ovs_assert(ipoib_proof_run(&proof));
    ovs_assert(!proof.tx.proven && !strcmp(proof.tx.reason, "not yet"));
    ovs_assert(!proof.tso.proven && !strcmp(proof.tso.reason, "not yet"));

    for (int i = 0; i < 4; i++) {
        params.needs_grh = i & 1;
        ipoib_proof_start(&proof, &params);
        if (i == 2) {
            continue;           /* Another one starts meanwhile. */
        }
        ovs_assert(!proof.tx.proven && !proof.rx.proven && !proof.tso.proven);
        ovs_assert(ipoib_proof_is_running(&proof));
        run(&proof);
        ovs_assert(proof.tx.proven == !tx && proof.rx.proven == !rx);
        ovs_assert(proof.tso.proven == !tso);
        ovs_assert(!tx || !strcmp(proof.tx.reason, tx));
        ovs_assert(!rx || !strcmp(proof.rx.reason, rx));
        ovs_assert(!tso || !strcmp(proof.tso.reason, tso));
        ovs_assert(!ipoib_proof_is_running(&proof));
    }
    ipoib_proof_destroy(&proof);
    close_device(&params);
}

/* What becomes of long packets once that of short ones is known. */
static void
check_tso_failures(void)
{
    struct ipoib_proof_params params = open_device("soft:loop?csum=good"
                                                   "&tso=good");
    const struct ipoib_verbs *soft = params.verbs;
    struct ipoib_verbs verbs = *soft;
    struct ipoib_proof proof;

    /* A queue pair that does not take them. */
    verbs.create_tso_qp = create_plain_qp;
    params.verbs = &verbs;
    ipoib_proof_init(&proof, "not yet");
    ipoib_proof_start(&proof, &params);
    run(&proof);
    ovs_assert(proof.tx.proven && proof.rx.proven && !proof.tso.proven);
    ovs_assert(!strcmp(proof.tso.reason, "the device refused a long packet"));

    /* None at all. */
    verbs.create_tso_qp = create_no_qp;
    ipoib_proof_start(&proof, &params);
    run(&proof);
    ovs_assert(proof.tx.proven && !proof.tso.proven);
    ovs_assert(!strcmp(proof.tso.reason, "a queue pair could not be made"));

    /* Nothing comes back. */
    verbs.create_tso_qp = create_qp_astray;
    verbs.create_ah = create_ah;
    ipoib_proof_start(&proof, &params);
    run(&proof);
    ovs_assert(proof.tx.proven && !proof.tso.proven);
    ovs_assert(!strcmp(proof.tso.reason,
                       "a segment to ourselves did not arrive"));
    ovs_assert(proof.n_trials == 3 && n_astray == 3);

    params.verbs = soft;
    close_device(&params);
}

/* Nothing comes back. */
static void
check_lost(void)
{
    struct ipoib_proof_params params = open_device("soft:loop?csum=good");
    const char *reason = "a packet to ourselves did not arrive";
    struct ipoib_proof proof;

    params.lid = 0x777;
    ipoib_proof_init(&proof, "not yet");
    ipoib_proof_start(&proof, &params);
    run(&proof);
    ovs_assert(!proof.tx.proven && !strcmp(proof.tx.reason, reason));
    ovs_assert(!proof.rx.proven && !strcmp(proof.rx.reason, reason));
    ovs_assert(proof.n_trials == 3);

    /* Nor is there a queue pair. */
    params.ud.port = 7;
    ipoib_proof_start(&proof, &params);
    ovs_assert(ipoib_proof_run(&proof));
    ovs_assert(!proof.tx.proven && !proof.rx.proven);
    ovs_assert(!strcmp(proof.tx.reason, "a queue pair could not be made"));
    close_device(&params);
}

static void
test_ipoib_proof_main(int argc OVS_UNUSED, char *argv[] OVS_UNUSED)
{
    const char *not_offered = "the device does not offer it";

    check_device("soft:loop", false, "the device refused a packet",
                 "the device did not find a checksum good", not_offered);
    check_device("soft:loop?csum=good", true, NULL, NULL, not_offered);
    check_device("soft:loop?csum=lies-tx", true,
                 "the device sent a wrong checksum", NULL, not_offered);
    check_device("soft:loop?csum=lies-rx", true, NULL,
                 "the device took a wrong checksum for good", not_offered);
    check_device("soft:loop?csum=good&tso=good", true, NULL, NULL, NULL);
    check_device("soft:loop?csum=good&tso=lies", true, NULL, NULL,
                 "the device sent a wrong segment");
    check_device("soft:loop?csum=lies-tx&tso=good", true,
                 "the device sent a wrong checksum", NULL,
                 "the device does not compute checksums");
    check_lost();
    check_tso_failures();
    ovsrcu_exit();
}

OVSTEST_REGISTER("test-ipoib-proof", test_ipoib_proof_main);
