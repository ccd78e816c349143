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
#include "ipoib-snoop-querier.h"

#include <string.h>

#include "ipoib-packet.h"
#include "packets.h"
#include "unaligned.h"
#include "util.h"

/* Defaults (RFC 3376, 8; RFC 3810, 9). */
#define DEFAULT_ROBUSTNESS 2
#define DEFAULT_INTERVAL 125000
#define DEFAULT_MAX_RESP 10000
#define DEFAULT_LAST_MEMBER 1000

/* Whatever a query says: a host that has just reported is a member for at
 * least this long, so that nobody can have others forgotten at once; and
 * nobody can have them remembered for ever. */
#define MIN_MEMBERSHIP 10000
#define MAX_MEMBERSHIP (3600 * 1000)
#define MIN_LAST_MEMBER 100
#define MAX_LAST_MEMBER 25500

/* Time that a query takes to be asked for, in ms. */
#define LEAVE_LATENCY 1000

#define MLD_V1_QUERY_LEN 24
#define MLD_V2_QUERY_LEN 28
#define PIM_OPTION_HOLDTIME 1
#define PIM_HOLDTIME_DEFAULT 105000

/* A router that says by PIM that it is there, or that it goes, is one for at
 * least this long, in ms: each time that the first one comes, or the last one
 * goes, many groups are joined or left. */
#define PIM_MIN 10000

/* Times in the floating point of RFC 3376, 4.1.1: 'bits' of mantissa, and an
 * exponent of 3 bits before it. */
static unsigned int
decode_time(unsigned int code, unsigned int bits)
{
    unsigned int top = 1u << (bits + 3);

    return (code < top ? code
            : ((code & ((1u << bits) - 1)) | 1u << bits)
              << ((code >> bits & 7) + 3));
}

bool
ipoib_query_parse_igmp(const void *ip, size_t len, size_t l4_ofs,
                       struct ipoib_query *query)
{
    const struct ip_header *nh = ip;
    const uint8_t *igmp = (const uint8_t *) ip + l4_ofs;
    size_t igmp_len = len - l4_ofs;
    ovs_be32 group;

    if (len < l4_ofs + IGMP_HEADER_LEN
        || igmp[0] != IGMP_HOST_MEMBERSHIP_QUERY) {
        return false;
    }
    memcpy(&group, igmp + 4, sizeof group);
    if (group && !ip_is_multicast(group)) {
        return false;
    }
    *query = (struct ipoib_query) {
        .general = !group,
        .group = in6_addr_mapped_ipv4(group),
        .sourceless = !get_16aligned_be32(&nh->ip_src),
        .max_resp = igmp[1] ? igmp[1] * 100 : DEFAULT_MAX_RESP,
    };
    if (igmp_len >= IGMPV3_QUERY_HEADER_LEN) {
        query->timed = true;
        query->max_resp = decode_time(igmp[1], 4) * 100;
        query->robustness = igmp[8] & 7;
        query->interval = decode_time(igmp[9], 4) * 1000;
    }
    return true;
}

bool
ipoib_query_parse_mld(const void *ip, size_t len, size_t l4_ofs,
                      struct ipoib_query *query)
{
    const struct ovs_16aligned_ip6_hdr *nh = ip;
    const uint8_t *mld = (const uint8_t *) ip + l4_ofs;
    size_t mld_len = len - l4_ofs;
    unsigned int code;
    struct in6_addr src;

    if (len < l4_ofs + MLD_V1_QUERY_LEN || mld[0] != MLD_QUERY) {
        return false;
    }
    memcpy(&src, &nh->ip6_src, sizeof src);
    if (!in6_is_lla(&src) && !ipv6_mask_is_any(&src)) {
        return false;
    }
    code = mld[4] << 8 | mld[5];
    memset(query, 0, sizeof *query);
    memcpy(&query->group, mld + 8, sizeof query->group);
    query->general = ipv6_mask_is_any(&query->group);
    query->sourceless = ipv6_mask_is_any(&src);
    query->max_resp = code;
    if (mld_len >= MLD_V2_QUERY_LEN) {
        query->timed = true;
        query->max_resp = decode_time(code, 12);
        query->robustness = mld[24] & 7;
        query->interval = decode_time(mld[25], 4) * 1000;
    }
    return query->general || ipv6_addr_is_multicast(&query->group);
}

long long int
ipoib_pim_hello_holdtime(const void *ip, size_t len, size_t l4_ofs)
{
    const uint8_t *pim = (const uint8_t *) ip + l4_ofs;
    size_t ofs = PIM_HEADER_LEN;

    len -= l4_ofs;
    if (len < PIM_HEADER_LEN || pim[0] != 0x20) {
        return -1;
    }
    while (len >= ofs + 4) {
        uint16_t type = pim[ofs] << 8 | pim[ofs + 1];
        uint16_t size = pim[ofs + 2] << 8 | pim[ofs + 3];

        ofs += 4;
        if (len < ofs + size) {
            return -1;
        }
        if (type == PIM_OPTION_HOLDTIME && size == 2) {
            return (pim[ofs] << 8 | pim[ofs + 1]) * 1000LL;
        }
        ofs += size;
    }
    return PIM_HOLDTIME_DEFAULT;
}

void
ipoib_querier_init(struct ipoib_querier *querier)
{
    *querier = (struct ipoib_querier) {
        .robustness = DEFAULT_ROBUSTNESS,
        .interval = DEFAULT_INTERVAL,
        .max_resp = DEFAULT_MAX_RESP,
        .last_member = DEFAULT_LAST_MEMBER,
    };
}

bool
ipoib_querier_is_present(const struct ipoib_querier *querier,
                         long long int now)
{
    return now < querier->until;
}

bool
ipoib_querier_has_router(const struct ipoib_querier *querier,
                         long long int now)
{
    return now < MAX(querier->router_until, querier->pim_until);
}

long long int
ipoib_querier_membership_interval(const struct ipoib_querier *querier)
{
    long long int interval = (querier->robustness
                              * (long long int) querier->interval
                              + querier->max_resp);

    return MIN(MAX(interval, MIN_MEMBERSHIP), MAX_MEMBERSHIP);
}

long long int
ipoib_querier_last_member_time(const struct ipoib_querier *querier)
{
    return querier->robustness * (long long int) querier->last_member
           + LEAVE_LATENCY;
}

void
ipoib_querier_heard(struct ipoib_querier *querier,
                    const struct ipoib_query *query, bool from_ethernet,
                    long long int now)
{
    long long int until;

    if (query->sourceless) {
        /* Hosts answer, but the times are not its affair. */
        return;
    }
    if (query->timed) {
        querier->robustness = (query->robustness ? query->robustness
                               : DEFAULT_ROBUSTNESS);
        querier->interval = (query->interval ? query->interval
                             : DEFAULT_INTERVAL);
    }
    if (query->general) {
        querier->max_resp = query->max_resp;
    } else {
        querier->last_member = MIN(MAX(query->max_resp, MIN_LAST_MEMBER),
                                   MAX_LAST_MEMBER);
    }
    if (!ipoib_querier_is_present(querier, now)) {
        querier->since = now;
    }
    /* Longer than the time after which others would take its place (RFC 3376,
     * 8.5), which is this without the other half of 'max_resp'. */
    until = now + ipoib_querier_membership_interval(querier);
    querier->until = MAX(querier->until, until);
    if (from_ethernet) {
        querier->router_until = MAX(querier->router_until, until);
    }
}

void
ipoib_querier_pim(struct ipoib_querier *querier, long long int holdtime,
                  long long int now)
{
    /* A goodbye is that of one router: what queries is not affected, and other
     * PIM routers are heard again soon. */
    querier->pim_until = (holdtime
                          ? MAX(querier->pim_until,
                                now + MAX(holdtime, PIM_MIN))
                          : MIN(querier->pim_until, now + PIM_MIN));
}
