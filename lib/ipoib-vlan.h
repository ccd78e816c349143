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

#ifndef IPOIB_VLAN_H
#define IPOIB_VLAN_H 1

/* Which VLAN is which partition: options:pkey-map.
 *
 * Thread-safety: none; the owner's lock. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "openvswitch/dynamic-string.h"

/* Partitions of one port at most: as many as an HCA port's P_Key table has
 * entries. */
#define IPOIB_MAX_VLANS 128

#define IPOIB_MAX_VID 4094

struct ipoib_vlan {
    uint16_t vid;               /* 0: untagged. */
    uint16_t pkey;              /* With bit 15 set. */
    uint16_t given;             /* As the user wrote it. */
};

struct ipoib_vlan_map {
    size_t n;
    struct ipoib_vlan vlans[IPOIB_MAX_VLANS];
};

/* Adds an element to 'map'.  Returns NULL, or what is wrong with it, which the
 * caller frees: the VLAN or partition is there already, or there is no
 * room. */
char *ipoib_vlan_map_add(struct ipoib_vlan_map *map, uint16_t vid,
                         uint16_t pkey);

/* Adds the elements of 's', "VID:P_KEY[,VID:P_KEY]...", to 'map'.  Returns
 * NULL, or what is wrong with it, which the caller frees. */
char *ipoib_vlan_map_parse(struct ipoib_vlan_map *map, const char *s);

/* Appends the elements other than the untagged one, as they are parsed. */
void ipoib_vlan_map_format(const struct ipoib_vlan_map *map, struct ds *s);

/* The element of partition 'pkey' (bit 15 is ignored), or NULL. */
const struct ipoib_vlan *
ipoib_vlan_map_find(const struct ipoib_vlan_map *map, uint16_t pkey);

bool ipoib_vlan_map_equals(const struct ipoib_vlan_map *a,
                           const struct ipoib_vlan_map *b);

#endif /* ipoib-vlan.h */
