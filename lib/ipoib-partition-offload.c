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

#include "ipoib-compat.h"
#include "openvswitch/vlog.h"
#include "smap.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(ipoib_partition_offload);

/* What the device computes in our stead: only what it has been seen to do, by
 * ipoib-proof.h, each time that a partition comes up. */

static bool
device_claims(const struct ipoib_partition *part)
{
    return part->hca->attr.device_cap_flags & IBV_DEVICE_UD_IP_CSUM;
}

uint32_t
ipoib_partition_max_tso(const struct ipoib_partition *part)
{
    return (ipoib_may_need_offload()
            ? ipoib_verbs_max_tso(part->hca->verbs, part->hca->ctx) : 0);
}

void
ipoib_partition_offload_init(struct ipoib_partition *part)
{
    atomic_init(&part->shared.tx_csum, false);
    atomic_init(&part->shared.rx_csum, false);
    atomic_init(&part->shared.tx_tso, 0);
    ipoib_proof_init(&part->proof,
                     device_claims(part) ? "the port has not been up"
                     : "the device does not offer it");
}

void
ipoib_partition_offload_destroy(struct ipoib_partition *part)
{
    ipoib_proof_destroy(&part->proof);
}

void
ipoib_partition_offload_start(struct ipoib_partition *part)
{
    const struct ipoib_hca_port *port = part->port;
    const struct ipoib_proof_params params = {
        .verbs = part->hca->verbs,
        .ctx = part->hca->ctx,
        .pd = part->hca->pd,
        .ud = part->ud,
        .lid = port->attr.lid,
        .needs_grh = port->needs_grh,
        .gid = port->gid,
        .max_tso = ipoib_partition_max_tso(part),
    };

    if (device_claims(part)) {
        atomic_store_relaxed(&part->shared.tx_csum, false);
        atomic_store_relaxed(&part->shared.rx_csum, false);
        atomic_store_relaxed(&part->shared.tx_tso, 0);
        ipoib_proof_start(&part->proof, &params);
    }
}

static void
log_verdict(const struct ipoib_partition *part, const char *what,
            const struct ipoib_proof_verdict *verdict)
{
    if (verdict->proven) {
        VLOG_INFO("%s: the device %s", part->name, what);
    } else {
        VLOG_INFO("%s: it is not relied on that the device %s: %s",
                  part->name, what, verdict->reason);
    }
}

bool
ipoib_partition_offload_run(struct ipoib_partition *part)
{
    uint32_t max_tso;

    if (!ipoib_proof_is_running(&part->proof)
        || !ipoib_proof_run(&part->proof)) {
        return false;
    }
    log_verdict(part, "computes checksums", &part->proof.tx);
    log_verdict(part, "verifies checksums", &part->proof.rx);
    max_tso = ipoib_partition_max_tso(part);
    if (max_tso) {
        log_verdict(part, "cuts TCP into segments", &part->proof.tso);
    }
    atomic_store_relaxed(&part->shared.tx_csum, part->proof.tx.proven);
    atomic_store_relaxed(&part->shared.rx_csum, part->proof.rx.proven);
    atomic_store_relaxed(&part->shared.tx_tso,
                         part->proof.tso.proven ? max_tso : 0);
    return true;
}

void
ipoib_partition_offload_wait(const struct ipoib_partition *part)
{
    ipoib_proof_wait(&part->proof);
}

static void
add_verdict(struct smap *smap, const char *key,
            const struct ipoib_proof_verdict *verdict, const char *otherwise)
{
    if (verdict->proven) {
        smap_add(smap, key, "device");
    } else {
        smap_add_format(smap, key, "%s (%s)", otherwise, verdict->reason);
    }
}

void
ipoib_partition_offload_status(const struct ipoib_partition *part,
                               struct smap *smap)
{
    add_verdict(smap, "checksum_tx", &part->proof.tx, "software");
    add_verdict(smap, "checksum_rx", &part->proof.rx, "not checked");
    if (ipoib_may_need_offload()) {
        add_verdict(smap, "segmentation_tx", &part->proof.tso, "software");
    } else {
        smap_add(smap, "segmentation_tx",
                 "not needed (see other_config:userspace-tso-enable)");
    }
}
