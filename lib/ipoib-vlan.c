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
#include "ipoib-vlan.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "ipoib-wire.h"
#include "util.h"

/* "untagged frames" or "VLAN 100". */
static char *
vlan_name(uint16_t vid)
{
    return vid ? xasprintf("VLAN %"PRIu16, vid) : xstrdup("untagged frames");
}

char *
ipoib_vlan_map_add(struct ipoib_vlan_map *map, uint16_t vid, uint16_t pkey)
{
    for (size_t i = 0; i < map->n; i++) {
        const struct ipoib_vlan *other = &map->vlans[i];

        if (other->vid == vid) {
            return xasprintf("VLAN %"PRIu16" is there twice", vid);
        } else if (!((other->pkey ^ pkey) & IB_PKEY_MASK)) {
            char *name = vlan_name(other->vid);
            char *error = xasprintf("P_Key 0x%04"PRIx16" (0x%04x) is that of "
                                    "%s already", pkey, pkey | IB_PKEY_FULL,
                                    name);

            free(name);
            return error;
        }
    }
    if (map->n >= IPOIB_MAX_VLANS) {
        return xasprintf("more than %d partitions", IPOIB_MAX_VLANS);
    }
    map->vlans[map->n++] = (struct ipoib_vlan) {
        .vid = vid,
        .pkey = pkey | IB_PKEY_FULL,
        .given = pkey,
    };
    return NULL;
}

/* Parses a number that ends with 'end' or the string. */
static bool
parse_number(const char **sp, char end, unsigned long int *value)
{
    char *tail;

    errno = 0;
    *value = strtoul(*sp, &tail, 0);
    if (errno || tail == *sp || **sp == '-' || **sp == '+' || **sp == ' '
        || (*tail && *tail != end)) {
        return false;
    }
    *sp = tail;
    return true;
}

/* Parses one element, of which 'length' bytes are there. */
static char *
parse_element(struct ipoib_vlan_map *map, const char *s, int length)
{
    const char *element = s;
    unsigned long int vid, pkey;

    if (!parse_number(&s, ':', &vid) || *s++ != ':'
        || !parse_number(&s, ',', &pkey)) {
        return xasprintf("'%.*s' is not VID:P_KEY", length, element);
    } else if (vid < 1 || vid > IPOIB_MAX_VID) {
        return xasprintf("VLAN %lu is not between 1 and %d", vid,
                         IPOIB_MAX_VID);
    } else if (pkey > UINT16_MAX || !(pkey & IB_PKEY_MASK)) {
        return xasprintf("P_Key 0x%04lx of VLAN %lu is not a partition "
                         "(0x0001 to 0x7fff, with or without bit 15)", pkey,
                         vid);
    }
    return ipoib_vlan_map_add(map, vid, pkey);
}

char *
ipoib_vlan_map_parse(struct ipoib_vlan_map *map, const char *s)
{
    for (;;) {
        size_t length = strcspn(s, ",");
        char *error = parse_element(map, s, length);

        if (error || !s[length]) {
            return error;
        }
        s += length + 1;
    }
}

void
ipoib_vlan_map_format(const struct ipoib_vlan_map *map, struct ds *s)
{
    bool first = true;

    for (size_t i = 0; i < map->n; i++) {
        const struct ipoib_vlan *vlan = &map->vlans[i];

        if (vlan->vid) {
            ds_put_format(s, "%s%"PRIu16":0x%04"PRIx16, first ? "" : ",",
                          vlan->vid, vlan->pkey);
            first = false;
        }
    }
}

const struct ipoib_vlan *
ipoib_vlan_map_find(const struct ipoib_vlan_map *map, uint16_t pkey)
{
    for (size_t i = 0; i < map->n; i++) {
        if (!((map->vlans[i].pkey ^ pkey) & IB_PKEY_MASK)) {
            return &map->vlans[i];
        }
    }
    return NULL;
}

bool
ipoib_vlan_map_equals(const struct ipoib_vlan_map *a,
                      const struct ipoib_vlan_map *b)
{
    if (a->n != b->n) {
        return false;
    }
    for (size_t i = 0; i < a->n; i++) {
        if (a->vlans[i].vid != b->vlans[i].vid
            || a->vlans[i].pkey != b->vlans[i].pkey) {
            return false;
        }
    }
    return true;
}
