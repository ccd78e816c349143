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

/* The BROADCAST flag of DHCP requests: set where it is needed, with the right
 * checksum, and nothing else is touched. */

#include <config.h>
#undef NDEBUG

#include "csum.h"
#include "ipoib-dhcp.h"
#include "ovstest.h"
#include "packets.h"
#include "util.h"

#define DHCP (IP_HEADER_LEN + UDP_HEADER_LEN)
#define LEN (DHCP + 300)

struct packet {
    uint8_t b[LEN];
};

static uint16_t
udp_csum(const struct packet *p)
{
    uint32_t sum = csum_continue(0, p->b + 12, 8);

    sum = csum_add16(sum, htons(IPPROTO_UDP));
    sum = csum_add16(sum, htons(LEN - IP_HEADER_LEN));
    return csum_finish(csum_continue(sum, p->b + IP_HEADER_LEN,
                                     LEN - IP_HEADER_LEN));
}

/* A DISCOVER of a client with an Ethernet address, whose checksum 'csum' says
 * whether there is. */
static struct packet
discover(uint32_t xid, bool csum)
{
    struct packet p = { .b = {
        [0] = 0x45, [2] = LEN >> 8, [3] = LEN & 0xff, [8] = 64, [9] = 17,
        [16] = 255, [17] = 255, [18] = 255, [19] = 255,
        [21] = 68, [23] = 67,
        [24] = (LEN - IP_HEADER_LEN) >> 8, [25] = (LEN - IP_HEADER_LEN) & 0xff,
        [DHCP] = 1, [DHCP + 1] = 1, [DHCP + 2] = 6,
        [DHCP + 4] = xid >> 24, [DHCP + 5] = xid >> 16, [DHCP + 6] = xid >> 8,
        [DHCP + 7] = xid,
        [DHCP + 28] = 2, [DHCP + 33] = 1,
    } };

    if (csum) {
        uint16_t sum = udp_csum(&p);

        sum = sum ? sum : UINT16_MAX;
        memcpy(&p.b[26], &sum, sizeof sum);
    }
    return p;
}

/* Sets byte 'ofs' of a DISCOVER to 'value': it is left as it is then. */
static void
check_untouched(size_t ofs, uint8_t value)
{
    struct packet p = discover(1, false), q;

    p.b[ofs] = value;
    q = p;
    ovs_assert(!ipoib_dhcp_set_broadcast(&q, sizeof q));
    ovs_assert(!memcmp(&p, &q, sizeof p));
}

static void
test_ipoib_dhcp_main(int argc OVS_UNUSED, char *argv[] OVS_UNUSED)
{
    struct packet p, q;

    /* With every value that the checksum can have before and after. */
    for (uint32_t xid = 0; xid < 70000; xid++) {
        p = q = discover(xid, true);
        ovs_assert(ipoib_dhcp_set_broadcast(&q, sizeof q));
        ovs_assert(q.b[DHCP + 10] == 0x80 && (q.b[26] || q.b[27]));
        ovs_assert(!udp_csum(&q));
        q.b[DHCP + 10] = 0;
        memcpy(&q.b[26], &p.b[26], 2);
        ovs_assert(!memcmp(&p, &q, sizeof p));
    }

    /* No checksum, and none is made. */
    q = discover(1, false);
    ovs_assert(ipoib_dhcp_set_broadcast(&q, sizeof q));
    ovs_assert(!q.b[26] && !q.b[27] && q.b[DHCP + 10] == 0x80);
    ovs_assert(!ipoib_dhcp_set_broadcast(&q, sizeof q));

    /* The other flags stay. */
    q = discover(1, false);
    q.b[DHCP + 10] = 0x7f;
    q.b[DHCP + 11] = 0xff;
    ovs_assert(ipoib_dhcp_set_broadcast(&q, sizeof q));
    ovs_assert(q.b[DHCP + 10] == 0xff && q.b[DHCP + 11] == 0xff);

    check_untouched(0, 0x65);                   /* No IPv4, */
    check_untouched(0, 0x44);
    check_untouched(2, 0);                      /* too short, */
    check_untouched(2, 0xff);                   /* too long, */
    check_untouched(6, 0x20);                   /* fragments, */
    check_untouched(7, 1);
    check_untouched(9, 6);                      /* no UDP, */
    check_untouched(23, 68);                    /* not to a server, */
    check_untouched(24, 0);                     /* UDP too short, */
    check_untouched(24, 2);                     /* or too long, */
    check_untouched(DHCP, 2);                   /* an answer, */
    check_untouched(DHCP + 10, 0x80);           /* has the flag, */
    check_untouched(DHCP + 15, 9);              /* has an address, */
    check_untouched(DHCP + 24, 9);              /* from a relay. */

    /* Whatever its length is. */
    for (size_t len = 0; len < LEN; len++) {
        q = discover(1, false);
        ovs_assert(!ipoib_dhcp_set_broadcast(&q, len));
    }
}

OVSTEST_REGISTER("test-ipoib-dhcp", test_ipoib_dhcp_main);
