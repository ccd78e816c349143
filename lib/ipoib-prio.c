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
#include "ipoib-prio.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "dp-packet.h"
#include "packets.h"
#include "unaligned.h"
#include "util.h"

#define MAX_SL 15
#define MAX_TCLASS 255

/* An element of a map. */
struct element {
    const char *kind;           /* "pcp" or "dscp". */
    uint8_t *table;
    unsigned long int first, last;
    struct ipoib_prio_class class;
};

/* Parses a decimal or hexadecimal number of at most 'max'. */
static bool
parse_number(const char **sp, unsigned long int max, unsigned long int *value)
{
    char *tail;

    if (!isdigit((unsigned char) **sp)) {
        return false;
    }
    errno = 0;
    *value = strtoul(*sp, &tail, 0);
    if (errno || *value > max) {
        return false;
    }
    *sp = tail;
    return true;
}

/* Parses "pcp5" and the like. */
static bool
parse_key(const char **sp, struct ipoib_prio_map *map, struct element *e)
{
    bool is_pcp = !strncmp(*sp, "pcp", 3);
    unsigned long int max = is_pcp ? 7 : 63;

    if (!is_pcp && strncmp(*sp, "dscp", 4)) {
        return false;
    }
    e->kind = is_pcp ? "pcp" : "dscp";
    e->table = is_pcp ? map->pcp : map->dscp;
    *sp += strlen(e->kind);
    if (!parse_number(sp, max, &e->first)) {
        return false;
    }
    e->last = e->first;
    if (**sp == '-') {
        ++*sp;
        return parse_number(sp, max, &e->last) && e->last >= e->first;
    }
    return true;
}

/* Parses the whole element of 'length' bytes at 's'. */
static bool
parse_element(const char *s, size_t length, struct ipoib_prio_map *map,
              struct element *e)
{
    const char *end = s + length;
    unsigned long int value;

    e->class = (struct ipoib_prio_class) { .sl = -1, .tclass = -1 };
    if (!parse_key(&s, map, e) || *s++ != ':') {
        return false;
    }
    if (*s == '-') {
        s++;
    } else if (parse_number(&s, MAX_SL, &value)) {
        e->class.sl = value;
    } else {
        return false;
    }
    if (*s == ':') {
        s++;
        if (!parse_number(&s, MAX_TCLASS, &value)) {
            return false;
        }
        e->class.tclass = value;
    }
    return s == end && (e->class.sl >= 0 || e->class.tclass >= 0);
}

/* The number of a class, or 0 if there are too many. */
static uint8_t
find_class(struct ipoib_prio_map *map, const struct ipoib_prio_class *class)
{
    for (uint8_t i = 1; i <= map->n; i++) {
        if (map->classes[i].sl == class->sl
            && map->classes[i].tclass == class->tclass) {
            return i;
        }
    }
    if (map->n + 1 >= IPOIB_MAX_CLASSES) {
        return 0;
    }
    map->classes[++map->n] = *class;
    return map->n;
}

static char *
add_element(const char *s, size_t length, struct ipoib_prio_map *map)
{
    struct element e;
    uint8_t class;

    if (!parse_element(s, length, map, &e)) {
        return xasprintf("'%.*s' is not KEY:SL[:TCLASS], where KEY is pcp0 to "
                         "pcp7 or dscp0 to dscp63, SL 0 to 15 and TCLASS 0 to "
                         "255", (int) length, s);
    }
    class = find_class(map, &e.class);
    if (!class) {
        return xasprintf("more than %d different pairs of SL and TCLASS",
                         IPOIB_MAX_CLASSES - 1);
    }
    for (unsigned long int i = e.first; i <= e.last; i++) {
        if (e.table[i]) {
            return xasprintf("%s%lu is there twice", e.kind, i);
        }
        e.table[i] = class;
    }
    return NULL;
}

char *
ipoib_prio_map_parse(struct ipoib_prio_map *map, const char *s)
{
    memset(map, 0, sizeof *map);
    map->classes[0] = (struct ipoib_prio_class) { .sl = -1, .tclass = -1 };
    for (;;) {
        size_t length = strcspn(s, ",");
        char *error = add_element(s, length, map);

        if (error || !s[length]) {
            return error;
        }
        s += length + 1;
    }
}

static void
format_table(const struct ipoib_prio_map *map, const char *kind,
             const uint8_t table[], size_t n, struct ds *s)
{
    for (size_t i = 0; i < n; ) {
        const struct ipoib_prio_class *class = &map->classes[table[i]];
        size_t last = i;

        while (last + 1 < n && table[last + 1] == table[i]) {
            last++;
        }
        if (table[i]) {
            ds_put_format(s, "%s%s%"PRIuSIZE, s->length ? "," : "", kind, i);
            if (last > i) {
                ds_put_format(s, "-%"PRIuSIZE, last);
            }
            if (class->sl >= 0) {
                ds_put_format(s, ":%d", class->sl);
            } else {
                ds_put_cstr(s, ":-");
            }
            if (class->tclass >= 0) {
                ds_put_format(s, ":%d", class->tclass);
            }
        }
        i = last + 1;
    }
}

void
ipoib_prio_map_format(const struct ipoib_prio_map *map, struct ds *s)
{
    format_table(map, "pcp", map->pcp, ARRAY_SIZE(map->pcp), s);
    format_table(map, "dscp", map->dscp, ARRAY_SIZE(map->dscp), s);
}

unsigned int
ipoib_prio_classify(const struct ipoib_prio_map *map,
                    const struct dp_packet *frame)
{
    const uint8_t *data = dp_packet_data(frame);
    size_t size = dp_packet_size(frame);
    size_t ofs = 2 * ETH_ADDR_LEN;
    unsigned int class;

    /* The type, and two bytes more. */
    if (size < ofs + 4) {
        return 0;
    }
    if (data[ofs] == ETH_TYPE_VLAN_8021Q >> 8
        && data[ofs + 1] == (ETH_TYPE_VLAN_8021Q & 0xff)) {
        class = map->pcp[data[ofs + 2] >> 5];
        ofs += VLAN_HEADER_LEN;
        if (class || size < ofs + 4) {
            return class;
        }
    }
    switch (data[ofs] << 8 | data[ofs + 1]) {
    case ETH_TYPE_IP:
        return map->dscp[data[ofs + 3] >> 2];

    case ETH_TYPE_IPV6:
        return map->dscp[(data[ofs + 2] & 0xf) << 2 | data[ofs + 3] >> 6];

    default:
        return 0;
    }
}
