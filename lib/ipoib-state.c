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
#include "ipoib-state.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>
#include "ipoib-compat.h"
#include "ipoib-control.h"
#include "openvswitch/dynamic-string.h"
#include "openvswitch/json.h"
#include "openvswitch/shash.h"
#include "openvswitch/vlog.h"
#include "packets.h"
#include "timeval.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(ipoib_state);

#define STATE_VERSION 1


/* Writing. */

static struct json *
ip_to_json(const struct in6_addr *ip)
{
    struct ds s = DS_EMPTY_INITIALIZER;
    struct json *json;

    ipv6_format_mapped(ip, &s);
    json = json_string_create(ds_cstr(&s));
    ds_destroy(&s);
    return json;
}

static void
host_to_json(struct ipoib_host *host, void *array)
{
    struct json *json = json_object_create();
    struct json *ips = json_array_create_empty();
    struct ipoib_host_ip *hip;

    LIST_FOR_EACH_REVERSE (hip, node, &host->ips) {
        json_array_add(ips, ip_to_json(&hip->ip));
    }
    json_object_put_format(json, "mac", ETH_ADDR_FMT,
                           ETH_ADDR_ARGS(host->mac));
    json_object_put(json, "router", json_boolean_create(host->is_router));
    json_object_put(json, "ips", ips);
    json_array_add(array, json);
}

static void
neigh_to_json(struct ipoib_neigh *neigh, void *array)
{
    struct json *json = json_object_create();
    struct json *ips = json_array_create_empty();
    struct ds s = DS_EMPTY_INITIALIZER;

    for (size_t i = ipoib_neigh_n_ips(neigh); i--; ) {
        json_array_add(ips, ip_to_json(ipoib_neigh_ip(neigh, i)));
    }
    ipoib_addr_format(&neigh->addr, &s);
    json_object_put_string(json, "address", ds_cstr(&s));
    ds_destroy(&s);
    json_object_put(json, "ips", ips);
    json_array_add(array, json);
}

static struct json *
state_to_json(const struct ipoib_partition *part)
{
    struct json *json = json_object_create();
    struct json *hosts = json_array_create_empty();
    struct json *neighs = json_array_create_empty();
    size_t pos = 0;

    ipoib_host_walk(part->shared.hosts, &pos, SIZE_MAX, host_to_json, hosts);
    pos = 0;
    ipoib_neigh_walk(part->shared.neighs, &pos, IPOIB_STATE_MAX_NEIGHBOURS,
                     neigh_to_json, neighs);
    json_object_put(json, "version", json_integer_create(STATE_VERSION));
    json_object_put(json, "saved", json_integer_create(time_wall()));
    json_object_put(json, "pkey", json_integer_create(part->pkey));
    json_object_put(json, "hosts", hosts);
    json_object_put(json, "neighbours", neighs);
    return json;
}

static int
write_file(const char *file, const char *text)
{
    FILE *stream = fopen(file, "w");
    int error;

    if (!stream) {
        return errno;
    }
    error = fputs(text, stream) == EOF ? errno : 0;
    if (fclose(stream) && !error) {
        error = errno;
    }
    return error;
}

char *
ipoib_state_to_text(const struct ipoib_partition *part)
{
    struct json *json = state_to_json(part);
    char *text = json_to_string(json, 0);

    json_destroy(json);
    return text;
}

int
ipoib_state_write(const char *text, const char *file)
{
    char *tmp = xasprintf("%s.tmp", file);
    int error = write_file(tmp, text);

    if (!error && rename(tmp, file)) {
        error = errno;
    }
    if (error) {
        unlink(tmp);
    }
    free(tmp);
    return error;
}


/* Reading. */

/* Member 'name' of 'json' if it is of 'type', otherwise NULL. */
static const struct json *
get_member(const struct json *json, const char *name, enum json_type type)
{
    const struct json *member = json->type == JSON_OBJECT
                                ? shash_find_data(json_object(json), name)
                                : NULL;

    return member && member->type == type ? member : NULL;
}

static bool
ip_from_json(const struct json *json, struct in6_addr *ip)
{
    ovs_be32 ip4;

    if (json->type != JSON_STRING) {
        return false;
    }
    if (ip_parse(json_string(json), &ip4)) {
        *ip = in6_addr_mapped_ipv4(ip4);
        return true;
    }
    return ipv6_parse(json_string(json), ip);
}

static bool
addr_from_string(const char *s, struct ipoib_addr *addr)
{
    uint8_t *bytes = (uint8_t *) addr;

    for (size_t i = 0; i < sizeof *addr; i++) {
        bool ok;

        bytes[i] = hexits_value(s, 2, &ok);
        if (!ok || s[2] != (i + 1 < sizeof *addr ? ':' : '\0')) {
            return false;
        }
        s += 3;
    }
    return true;
}

static bool
host_load(struct ipoib_partition *part, const struct json *json,
          long long int now)
{
    const struct json *mac = get_member(json, "mac", JSON_STRING);
    const struct json *ips = get_member(json, "ips", JSON_ARRAY);
    struct ipoib_host *host;
    struct eth_addr ea;

    if (!mac || !ips || !eth_addr_from_string(json_string(mac), &ea)) {
        return false;
    }
    host = ipoib_control_learn_host(part, ea, NULL, now);
    for (size_t i = 0; host && i < ipoib_json_array_size(ips); i++) {
        struct in6_addr ip;

        if (ip_from_json(ipoib_json_array_at(ips, i), &ip)) {
            host = ipoib_control_learn_host(part, ea, &ip, now);
        }
    }
    if (host && get_member(json, "router", JSON_TRUE)) {
        ipoib_host_set_router(part->shared.hosts, host, true);
    }
    return host != NULL;
}

static bool
neigh_load(struct ipoib_partition *part, const struct json *json,
           long long int now)
{
    const struct json *address = get_member(json, "address", JSON_STRING);
    const struct json *ips = get_member(json, "ips", JSON_ARRAY);
    struct ipoib_addr addr;

    if (!address || !ips || !addr_from_string(json_string(address), &addr)
        || !ipoib_control_learn_neigh(part, &addr, NULL, 0, now)) {
        return false;
    }
    for (size_t i = 0; i < ipoib_json_array_size(ips); i++) {
        struct in6_addr ip;

        if (ip_from_json(ipoib_json_array_at(ips, i), &ip)) {
            ipoib_control_learn_neigh(part, &addr, &ip, 0, now);
        }
    }
    return true;
}

static size_t
load_array(struct ipoib_partition *part, const struct json *json,
           const char *name,
           bool (*load)(struct ipoib_partition *, const struct json *,
                        long long int now))
{
    const struct json *array = get_member(json, name, JSON_ARRAY);
    long long int now = time_msec();
    size_t n = 0;

    for (size_t i = 0; array && i < ipoib_json_array_size(array); i++) {
        n += load(part, ipoib_json_array_at(array, i), now);
    }
    return n;
}

static bool
state_is_usable(const struct ipoib_partition *part, const struct json *json)
{
    const struct json *version = get_member(json, "version", JSON_INTEGER);
    const struct json *saved = get_member(json, "saved", JSON_INTEGER);
    const struct json *pkey = get_member(json, "pkey", JSON_INTEGER);

    return version && json_integer(version) == STATE_VERSION
           && pkey && json_integer(pkey) == part->pkey
           && saved && json_integer(saved) <= time_wall()
           && json_integer(saved) + IPOIB_HOST_IDLE / 1000 > time_wall();
}

size_t
ipoib_state_load(struct ipoib_partition *part, const char *file)
{
    struct json *json;
    size_t n = 0;

    if (access(file, R_OK)) {
        return 0;
    }
    json = json_from_file(file);
    if (json->type == JSON_STRING) {
        VLOG_WARN("%s: %s: %s", part->name, file, json_string(json));
    } else if (state_is_usable(part, json)) {
        /* Neighbours first: a stand-in MAC is not taken for a host's then. */
        n = load_array(part, json, "neighbours", neigh_load);
        n += load_array(part, json, "hosts", host_load);
    }
    json_destroy(json);
    return n;
}
