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
#include "ipoib-vlan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ovstest.h"
#include "util.h"

/* 's' is a map, which is formatted as 'expected'. */
static void
check_good(const char *s, const char *expected)
{
    struct ipoib_vlan_map map = { .n = 0 };
    struct ds out = DS_EMPTY_INITIALIZER;
    char *error = ipoib_vlan_map_parse(&map, s);

    ovs_assert(!error);
    ipoib_vlan_map_format(&map, &out);
    if (strcmp(ds_cstr(&out), expected)) {
        ovs_fatal(0, "%s: %s instead of %s", s, ds_cstr(&out), expected);
    }
    ds_destroy(&out);
}

/* 's' is no map, or not beside P_Key 0xffff for untagged frames, and
 * 'expected' says why. */
static void
check_bad(const char *s, const char *expected)
{
    struct ipoib_vlan_map map = { .n = 0 };
    char *error;

    ovs_assert(!ipoib_vlan_map_add(&map, 0, 0xffff));
    error = ipoib_vlan_map_parse(&map, s);
    if (!error || strcmp(error, expected)) {
        ovs_fatal(0, "%s: %s instead of %s", s, error ? error : "nothing",
                  expected);
    }
    free(error);
}

static void
check_many(void)
{
    struct ipoib_vlan_map map = { .n = 0 };
    char *error;

    for (int i = 1; i <= IPOIB_MAX_VLANS; i++) {
        ovs_assert(!ipoib_vlan_map_add(&map, i, i + 0x100));
    }
    error = ipoib_vlan_map_add(&map, IPOIB_MAX_VLANS + 1, 0x7000);
    ovs_assert(error && !strcmp(error, "more than 128 partitions"));
    free(error);
    ovs_assert(map.n == IPOIB_MAX_VLANS);
    for (int i = 1; i <= IPOIB_MAX_VLANS; i++) {
        ovs_assert(ipoib_vlan_map_find(&map, i + 0x100)->vid == i);
        ovs_assert(ipoib_vlan_map_find(&map, i + 0x8100)->vid == i);
    }
    ovs_assert(!ipoib_vlan_map_find(&map, 0x7000));
}

static void
check_equals(void)
{
    static const char *const maps[] = {
        "1:1", "1:2", "2:1", "1:1,2:2", "2:2,1:1",
    };

    for (size_t i = 0; i < ARRAY_SIZE(maps); i++) {
        for (size_t j = 0; j < ARRAY_SIZE(maps); j++) {
            struct ipoib_vlan_map a = { .n = 0 }, b = { .n = 0 };

            ovs_assert(!ipoib_vlan_map_parse(&a, maps[i]));
            ovs_assert(!ipoib_vlan_map_parse(&b, maps[j]));
            ovs_assert(ipoib_vlan_map_equals(&a, &b) == (i == j));
        }
    }
}

static void
test_ipoib_vlan_main(int argc OVS_UNUSED, char *argv[] OVS_UNUSED)
{
    check_good("100:0x8064", "100:0x8064");
    check_good("100:0x64,0xc8:0x8065", "100:0x8064,200:0x8065");
    check_good("1:1,4094:32767", "1:0x8001,4094:0xffff");

    check_bad("", "'' is not VID:P_KEY");
    check_bad("100", "'100' is not VID:P_KEY");
    check_bad("100:", "'100:' is not VID:P_KEY");
    check_bad(":1", "':1' is not VID:P_KEY");
    check_bad("100:1,", "'' is not VID:P_KEY");
    check_bad("100:1,x:2", "'x:2' is not VID:P_KEY");
    check_bad("100=1", "'100=1' is not VID:P_KEY");
    check_bad("100:1;101:2", "'100:1;101:2' is not VID:P_KEY");
    check_bad("-1:1", "'-1:1' is not VID:P_KEY");
    check_bad("1:-1", "'1:-1' is not VID:P_KEY");
    check_bad("1:99999999999999999999",
              "'1:99999999999999999999' is not VID:P_KEY");
    check_bad("0:1", "VLAN 0 is not between 1 and 4094");
    check_bad("4095:1", "VLAN 4095 is not between 1 and 4094");
    check_bad("5:0", "P_Key 0x0000 of VLAN 5 is not a partition (0x0001 to "
              "0x7fff, with or without bit 15)");
    check_bad("5:0x8000", "P_Key 0x8000 of VLAN 5 is not a partition (0x0001 "
              "to 0x7fff, with or without bit 15)");
    check_bad("5:0x10001", "P_Key 0x10001 of VLAN 5 is not a partition "
              "(0x0001 to 0x7fff, with or without bit 15)");
    check_bad("5:1,5:2", "VLAN 5 is there twice");
    check_bad("5:1,6:0x8001", "P_Key 0x8001 (0x8001) is that of VLAN 5 "
              "already");
    check_bad("5:0x7fff", "P_Key 0x7fff (0xffff) is that of untagged frames "
              "already");
    check_many();
    check_equals();
}

OVSTEST_REGISTER("test-ipoib-vlan", test_ipoib_vlan_main);
