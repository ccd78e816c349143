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
#include "ipoib-prio.h"

#include <stdlib.h>
#include <string.h>
#include "dp-packet.h"
#include "ovstest.h"
#include "packets.h"
#include "util.h"

/* 's' is a map, which is formatted as 'expected'. */
static void
check_good(const char *s, const char *expected)
{
    struct ds out = DS_EMPTY_INITIALIZER;
    struct ipoib_prio_map map;
    char *error = ipoib_prio_map_parse(&map, s);

    if (error) {
        ovs_fatal(0, "%s: %s", s, error);
    }
    ipoib_prio_map_format(&map, &out);
    if (strcmp(ds_cstr(&out), expected)) {
        ovs_fatal(0, "%s: %s instead of %s", s, ds_cstr(&out), expected);
    }
    ds_destroy(&out);
}

/* 's' is no map, for a reason in which 'expected' is. */
static void
check_bad(const char *s, const char *expected)
{
    struct ipoib_prio_map map;
    char *error = ipoib_prio_map_parse(&map, s);

    if (!error || !strstr(error, expected)) {
        ovs_fatal(0, "%s: %s instead of %s", s, error ? error : "nothing",
                  expected);
    }
    free(error);
}

/* The class of a frame: without a tag if 'pcp' is negative, of 'type', with
 * 'dscp', cut to 'size' bytes. */
static unsigned int
class_of(const struct ipoib_prio_map *map, int pcp, uint16_t type, int dscp,
         size_t size)
{
    struct dp_packet *frame = dp_packet_new_with_headroom(64, 16);
    uint8_t *data = dp_packet_put_zeros(frame, 64);
    unsigned int class;
    size_t ofs = 12;

    if (pcp >= 0) {
        memcpy(data + ofs, "\x81\0", 2);
        data[ofs + 2] = pcp << 5;
        data[ofs + 3] = 100;
        ofs += 4;
    }
    data[ofs] = type >> 8;
    data[ofs + 1] = type;
    if (type == ETH_TYPE_IP) {
        data[ofs + 2] = 0x45;
        data[ofs + 3] = dscp << 2 | 3;
    } else {
        data[ofs + 2] = 0x60 | dscp >> 2;
        data[ofs + 3] = dscp << 6 | 0x3f;
    }
    dp_packet_set_size(frame, size);
    class = ipoib_prio_classify(map, frame);
    dp_packet_delete(frame);
    return class;
}

static void
check_classes(void)
{
    struct ipoib_prio_map map;

    ovs_assert(!ipoib_prio_map_parse(&map, "pcp5:1,dscp46:2,dscp8:1,"
                                     "pcp7:-:200,pcp6:15:255"));
    ovs_assert(map.n == 4);
    for (int i = 0; i < 64; i++) {
        unsigned int class = i == 46 ? 2 : i == 8 ? 1 : 0;

        ovs_assert(class_of(&map, -1, ETH_TYPE_IP, i, 64) == class);
        ovs_assert(class_of(&map, -1, ETH_TYPE_IPV6, i, 64) == class);
        ovs_assert(class_of(&map, -1, ETH_TYPE_ARP, i, 64) == 0);
        /* The tag comes first, if the map has its priority. */
        ovs_assert(class_of(&map, 0, ETH_TYPE_IP, i, 64) == class);
        ovs_assert(class_of(&map, 4, ETH_TYPE_IPV6, i, 64) == class);
        ovs_assert(class_of(&map, 5, ETH_TYPE_IP, i, 64) == 1);
        ovs_assert(class_of(&map, 6, ETH_TYPE_IP, i, 64) == 4);
        ovs_assert(class_of(&map, 7, ETH_TYPE_ARP, i, 64) == 3);
    }
    ovs_assert(map.classes[1].sl == 1 && map.classes[1].tclass == -1);
    ovs_assert(map.classes[3].sl == -1 && map.classes[3].tclass == 200);
    ovs_assert(map.classes[4].sl == 15 && map.classes[4].tclass == 255);

    /* Frames that are cut. */
    for (size_t size = 0; size < 20; size++) {
        ovs_assert(class_of(&map, -1, ETH_TYPE_IP, 46, size)
                   == (size < 16 ? 0 : 2));
        ovs_assert(class_of(&map, 0, ETH_TYPE_IP, 46, size)
                   == (size < 20 ? 0 : 2));
        ovs_assert(class_of(&map, 5, ETH_TYPE_IP, 46, size)
                   == (size < 16 ? 0 : 1));
    }
}

static void
test_ipoib_prio_main(int argc OVS_UNUSED, char *argv[] OVS_UNUSED)
{
    check_good("pcp5:1", "pcp5:1");
    check_good("dscp46:0x1:0xb8", "dscp46:1:184");
    check_good("dscp46:-:184,pcp7:3,pcp4-6:3", "pcp4-7:3,dscp46:-:184");
    check_good("pcp0-7:0,dscp0-63:15", "pcp0-7:0,dscp0-63:15");
    check_good("pcp0:0,pcp1:1,pcp2:2,pcp3:3,pcp4:4,pcp5:5,pcp6:6,pcp7:6",
               "pcp0:0,pcp1:1,pcp2:2,pcp3:3,pcp4:4,pcp5:5,pcp6-7:6");

    check_bad("", "'' is not KEY:SL[:TCLASS]");
    check_bad("5:1", "'5:1' is not");
    check_bad("pcp:1", "'pcp:1' is not");
    check_bad("pcp8:1", "'pcp8:1' is not");
    check_bad("pcp5-4:1", "'pcp5-4:1' is not");
    check_bad("pcp5-8:1", "'pcp5-8:1' is not");
    check_bad("dscp64:1", "'dscp64:1' is not");
    check_bad("dscp6:16", "'dscp6:16' is not");
    check_bad("dscp6:-1", "'dscp6:-1' is not");
    check_bad("dscp6:-", "'dscp6:-' is not");
    check_bad("dscp6:1:256", "'dscp6:1:256' is not");
    check_bad("dscp6:1:2:3", "'dscp6:1:2:3' is not");
    check_bad("dscp6:1 ", "'dscp6:1 ' is not");
    check_bad("dscp6:1,", "'' is not");
    check_bad("dscp6:1,pcp", "'pcp' is not");
    check_bad("dscp6:1,dscp5-7:2", "dscp6 is there twice");
    check_bad("pcp0:0,pcp1:1,pcp2:2,pcp3:3,pcp4:4,pcp5:5,pcp6:6,pcp7:7",
              "more than 7 different pairs of SL and TCLASS");
    check_classes();
}

OVSTEST_REGISTER("test-ipoib-prio", test_ipoib_prio_main);
