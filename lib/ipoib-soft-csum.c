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

#include <netinet/in.h>
#include "csum.h"
#include "ipoib-offload.h"
#include "ipoib-packet.h"
#include "packets.h"
#include "util.h"

/* Checksums that the software HCA computes and checks, if its name has "csum":
 * as a device with IBV_DEVICE_UD_IP_CSUM does.  TCP and UDP right behind an IP
 * header are known; of what is received, only IPv4 is looked at.
 *
 * Such devices find the type in the IPoIB header. */

struct soft_payload {
    uint8_t *ip;
    size_t len;
    ovs_be16 type;
};

/* The payload of 'len' bytes in 'buf'. */
static struct soft_payload
payload_in(uint8_t *buf, size_t len)
{
    struct ipoib_header header;

    if (len < sizeof header) {
        return (struct soft_payload) { .ip = buf, .len = 0 };
    }
    memcpy(&header, buf, sizeof header);
    return (struct soft_payload) {
        .ip = buf + sizeof header,
        .len = len - sizeof header,
        .type = header.type,
    };
}

/* Puts the pieces of the payload together in 'buf'. */
static struct soft_payload
payload_of(const struct soft_packet *p, uint8_t *buf)
{
    size_t len = 0;

    for (size_t i = 0; i < p->n_iov; i++) {
        memcpy(buf + len, p->iov[i].iov_base, p->iov[i].iov_len);
        len += p->iov[i].iov_len;
    }
    return payload_in(buf, len);
}

/* Returns false, and does nothing, if 'payload' is not known. */
static bool
complete(const struct soft_payload *payload)
{
    struct ipoib_offload o;

    if (!ipoib_offload_parse_ip(payload->ip, payload->len, payload->type, &o)
        || !ipoib_offload_is_simple(&o)) {
        return false;
    }
    if (o.v4) {
        struct ip_header *nh = ALIGNED_CAST(struct ip_header *, o.ip);

        nh->ip_csum = 0;
        nh->ip_csum = csum(nh, IP_HEADER_LEN);
    }
    ipoib_offload_complete(&o);
    return true;
}

void
soft_csum_complete(struct soft_packet *p, uint8_t *buf)
{
    struct soft_payload payload = payload_of(p, buf);

    if (complete(&payload)) {
        p->iov[0].iov_base = buf;
        p->iov[0].iov_len = sizeof(struct ipoib_header) + payload.len;
        p->n_iov = 1;
    }
}

void
soft_csum_complete_payload(uint8_t *p, size_t len)
{
    struct soft_payload payload = payload_in(p, len);

    complete(&payload);
}

bool
soft_csum_is_good(const struct soft_packet *p)
{
    uint64_t buf[SOFT_MAX_PAYLOAD / 8];
    struct soft_payload payload;
    struct ipoib_offload o;

    payload = payload_of(p, (uint8_t *) buf);
    return (ipoib_offload_parse_ip(payload.ip, payload.len, payload.type, &o)
            && ipoib_offload_is_simple(&o) && o.v4
            && !csum(o.ip, IP_HEADER_LEN)
            && ipoib_offload_verify(&o));
}
