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

#ifndef IPOIB_PRIO_H
#define IPOIB_PRIO_H 1

/* Which priority of a frame is which service level: options:prio-map.
 *
 * The priorities make classes, each with a service level (SL) and traffic
 * class of its own; class 0 is what paths have by themselves.
 *
 * Thread-safety: none; the owner's lock. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "openvswitch/dynamic-string.h"

struct dp_packet;

#define IPOIB_MAX_CLASSES 8

struct ipoib_prio_class {
    int16_t sl;                 /* -1: that of the path. */
    int16_t tclass;             /* -1: that of the path. */
};

struct ipoib_prio_map {
    uint8_t n;                  /* Classes other than 0. */
    struct ipoib_prio_class classes[IPOIB_MAX_CLASSES];
    uint8_t pcp[8];             /* Class of a PCP, 0 if it says nothing... */
    uint8_t dscp[64];           /* ...then of a DSCP. */
};

/* Makes 'map' of 's', "KEY:SL[:TCLASS][,...]" where KEY is pcpN, dscpN, pcpN-M
 * or dscpN-M, and SL is '-' for that of the path.  Returns NULL, or what is
 * wrong with it, which the caller frees. */
char *ipoib_prio_map_parse(struct ipoib_prio_map *map, const char *s);

/* Appends 'map' as it is parsed. */
void ipoib_prio_map_format(const struct ipoib_prio_map *map, struct ds *s);

/* The class of an Ethernet frame, which may have a tag. */
unsigned int ipoib_prio_classify(const struct ipoib_prio_map *map,
                                 const struct dp_packet *frame);

#endif /* ipoib-prio.h */
