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
#include "fabric-fault.h"

#include <stdlib.h>
#include <string.h>

#include "fabric-ports.h"
#include "openvswitch/dynamic-string.h"
#include "openvswitch/json.h"
#include "openvswitch/poll-loop.h"
#include "random.h"
#include "timeval.h"
#include "util.h"

/* A packet that waits to be overtaken does not wait longer than this. */
#define REORDER_MAX_MS 50
/* Packets that are held at most, whatever the delay. */
#define MAX_DELAYED 65536
#define MAX_DELAY_MS 60000

enum fault_type {
    FAULT_LOSS,
    FAULT_DUPLICATE,
    FAULT_DELAY,
    FAULT_REORDER,
};
static const char *const fault_names[] = {
    "loss", "duplicate", "delay", "reorder"
};

enum {
    KIND_MAD = 1 << 0,
    KIND_DATA = 1 << 1,
    KIND_ALL = KIND_MAD | KIND_DATA,
};

struct fabric_fault {
    struct ovs_list node;
    unsigned int id;
    uint64_t guid;              /* 0: every port. */
    enum fault_type type;
    double value;               /* Probability (0 to 1), or milliseconds. */
    unsigned int kinds;         /* KIND_*. */
    bool dirs[FABRIC_N_DIRS];
    uint64_t n_hits;
};

/* A fault of the subnet administrator. */
struct fabric_sa_fault {
    struct ovs_list node;
    unsigned int id;
    uint64_t guid;              /* 0: every port. */
    bool ignore;
    uint16_t status;            /* If not 'ignore'. */
    unsigned int method;        /* 0: any. */
    unsigned int attr;          /* 0: any. */
    unsigned long long int left; /* So many requests more; 0: no limit. */
    uint64_t n_hits;
};

/* A packet held back. */
struct fabric_delayed {
    struct heap_node node;
    uint64_t guid;
    enum fabric_dir dir;
    struct fabric_packet packet; /* Its 'msg' is 'bytes'. */
    uint8_t bytes[];
};

void
fabric_fault_init(struct fabric *fabric)
{
    ovs_list_init(&fabric->faults);
    ovs_list_init(&fabric->sa_faults);
    heap_init(&fabric->delayed);
    fabric->next_fault_id = 1;
}

void
fabric_fault_destroy(struct fabric *fabric)
{
    fabric_fault_clear(fabric);
    while (!heap_is_empty(&fabric->delayed)) {
        free(CONTAINER_OF(heap_pop(&fabric->delayed),
                          struct fabric_delayed, node));
    }
    heap_destroy(&fabric->delayed);
}

/* Holding packets. */

/* The heap has the largest priority first; packets of one millisecond leave in
 * the order in which they came. */
#define SEQ_BITS 20

static long long int
delayed_deadline(const struct fabric_delayed *d)
{
    return (UINT64_MAX - d->node.priority) >> SEQ_BITS;
}

static struct fabric_delayed *
hold(struct fabric *fabric, struct fabric_port *port, enum fabric_dir dir,
     const struct fabric_packet *packet, long long int ms)
{
    uint64_t deadline = time_msec() + ms;
    struct fabric_delayed *d;

    if (heap_count(&fabric->delayed) >= MAX_DELAYED) {
        fabric_count(fabric, port, FC_fault_overflow);
        return NULL;
    }
    d = xmalloc(sizeof *d + packet->len);
    d->guid = port->guid;
    d->dir = dir;
    d->packet = *packet;
    d->packet.msg = d->bytes;
    d->packet.transient = true;
    memcpy(d->bytes, packet->msg, packet->len);
    heap_insert(&fabric->delayed, &d->node,
                UINT64_MAX - (deadline << SEQ_BITS
                              | (fabric->delay_seq++
                                 & ((1u << SEQ_BITS) - 1))));
    return d;
}

/* Lets 'd' go on, if its port is still there. */
static void
release(struct fabric *fabric, struct fabric_delayed *d,
        fabric_fault_resume *resume)
{
    struct fabric_port *port = fabric_port_by_guid(fabric, d->guid);

    heap_remove(&fabric->delayed, &d->node);
    if (port) {
        if (port->held[d->dir] == d) {
            port->held[d->dir] = NULL;
        }
        if (fabric_port_is_present(port)) {
            resume(fabric, port, d->dir, &d->packet);
        }
    }
    free(d);
}

void
fabric_fault_run(struct fabric *fabric, fabric_fault_resume *resume)
{
    while (!heap_is_empty(&fabric->delayed)) {
        struct fabric_delayed *d = CONTAINER_OF(heap_max(&fabric->delayed),
                                                struct fabric_delayed, node);

        if (delayed_deadline(d) > time_msec()) {
            break;
        }
        release(fabric, d, resume);
    }
}

void
fabric_fault_wait(struct fabric *fabric)
{
    if (!heap_is_empty(&fabric->delayed)) {
        poll_timer_wait_until(delayed_deadline(
            CONTAINER_OF(heap_max(&fabric->delayed),
                         struct fabric_delayed, node)));
    }
}

/* Applying faults. */

static bool
roll(double probability)
{
    return random_uint32() < probability * 4294967296.0;
}

/* What the faults together do to one packet. */
struct fate {
    bool lost;
    bool reorder;
    int copies;
    double delay_ms;
};

static struct fate
decide(struct fabric *fabric, const struct fabric_port *port,
       enum fabric_dir dir, unsigned int kind)
{
    struct fate fate = { .copies = 1 };
    struct fabric_fault *fault;

    LIST_FOR_EACH (fault, node, &fabric->faults) {
        if ((fault->guid && fault->guid != port->guid)
            || !fault->dirs[dir] || !(fault->kinds & kind)
            || (fault->type != FAULT_DELAY && !roll(fault->value))) {
            continue;
        }
        fault->n_hits++;
        switch (fault->type) {
        case FAULT_LOSS:
            fate.lost = true;
            return fate;
        case FAULT_DUPLICATE:
            fate.copies++;
            break;
        case FAULT_DELAY:
            fate.delay_ms += fault->value;
            break;
        case FAULT_REORDER:
            fate.reorder = true;
            break;
        }
    }
    return fate;
}

/* Applies the faults to 'packet', which goes through 'port' in direction
 * 'dir'.  Returns true if they disposed of the packet (it is lost, or comes
 * back later by 'resume'), false if the caller is to go on with it. */
bool
fabric_fault_apply(struct fabric *fabric, struct fabric_port *port,
                   enum fabric_dir dir, const struct fabric_packet *packet,
                   fabric_fault_resume *resume)
{
    struct fabric_delayed *held;
    struct fate fate;

    if (ovs_list_is_empty(&fabric->faults)) {
        return false;
    }
    fate = decide(fabric, port, dir,
                  fabric_packet_is_mad(packet) ? KIND_MAD : KIND_DATA);
    if (fate.lost) {
        fabric_count(fabric, port, FC_fault_lost);
        return true;
    }
    for (int i = 1; i < fate.copies; i++) {
        fabric_count(fabric, port, FC_fault_duplicated);
        if (fate.delay_ms >= 1) {
            hold(fabric, port, dir, packet, fate.delay_ms);
        } else {
            resume(fabric, port, dir, packet);
        }
    }
    if (fate.delay_ms >= 1) {
        fabric_count(fabric, port, FC_fault_delayed);
        hold(fabric, port, dir, packet, fate.delay_ms);
        return true;
    }

    held = port->held[dir];
    if (held) {
        /* This packet overtakes the held one. */
        struct fabric_packet copy = *packet;

        copy.transient = true;
        resume(fabric, port, dir, &copy);
        release(fabric, held, resume);
        return true;
    }
    if (fate.reorder) {
        held = hold(fabric, port, dir, packet, REORDER_MAX_MS);
        if (held) {
            fabric_count(fabric, port, FC_fault_reordered);
            port->held[dir] = held;
        }
        return true;
    }
    return false;
}

/* Adding and removing faults. */

/* Returns the value of 'word' if it is "KEY=VALUE", otherwise NULL. */
static const char *
word_value(const char *word, const char *key)
{
    size_t n = strlen(key);

    return !strncmp(word, key, n) && word[n] == '=' ? word + n + 1 : NULL;
}

static char *
parse_fault_word(struct fabric_fault *fault, const char *word)
{
    const char *kind = word_value(word, "kind");
    const char *dir = word_value(word, "direction");

    if (kind) {
        fault->kinds = (!strcmp(kind, "mad") ? KIND_MAD
                        : !strcmp(kind, "data") ? KIND_DATA
                        : !strcmp(kind, "all") ? KIND_ALL : 0);
        return (fault->kinds ? NULL
                : xasprintf("kind=%s: not mad, data or all", kind));
    }
    if (!dir) {
        dir = word;
    }
    fault->dirs[FABRIC_FROM_PORT] = !strcmp(dir, "from")
                                    || !strcmp(dir, "both");
    fault->dirs[FABRIC_TO_PORT] = !strcmp(dir, "to") || !strcmp(dir, "both");
    return (fault->dirs[FABRIC_FROM_PORT] || fault->dirs[FABRIC_TO_PORT] ? NULL
            : xasprintf("%s: neither kind=KIND nor a direction (from, to, "
                        "both)", word));
}

static char *
parse_fault_value(struct fabric_fault *fault, const char *value)
{
    bool is_delay = fault->type == FAULT_DELAY;
    const char *unit;
    char *tail;
    double x;

    x = strtod(value, &tail);
    unit = is_delay ? "ms" : "%";
    if (tail == value || (*tail && strcmp(tail, unit))
        || !(x >= 0 && x <= (is_delay ? MAX_DELAY_MS : 100))) {
        return (is_delay
                ? xasprintf("%s: not 0 to %d milliseconds", value,
                            MAX_DELAY_MS)
                : xasprintf("%s: not 0 to 100 percent", value));
    }
    fault->value = is_delay ? x : x / 100;
    return NULL;
}

/* Adds a fault of 'type' and 'value' at the port 'guid' (0: at every port),
 * narrowed down by the 'n' 'words'.  Returns NULL and stores its number in
 * '*idp', or returns an error, which the caller must free. */
char *
fabric_fault_add(struct fabric *fabric, uint64_t guid, const char *type,
                 const char *value, const char *const *words, size_t n,
                 unsigned int *idp)
{
    struct fabric_fault new = {
        .guid = guid, .kinds = KIND_ALL, .dirs = { true, true },
    };
    size_t i;
    char *error;

    for (i = 0; i < ARRAY_SIZE(fault_names); i++) {
        if (!strcmp(type, fault_names[i])) {
            break;
        }
    }
    if (i >= ARRAY_SIZE(fault_names)) {
        return xasprintf("%s: not loss, duplicate, delay or reorder", type);
    }
    new.type = i;
    error = parse_fault_value(&new, value);
    for (i = 0; i < n && !error; i++) {
        error = parse_fault_word(&new, words[i]);
    }
    if (error) {
        return error;
    }
    new.id = *idp = fabric->next_fault_id++;
    struct fabric_fault *fault = xmemdup(&new, sizeof new);
    ovs_list_push_back(&fabric->faults, &fault->node);
    return NULL;
}

static bool
parse_number(const char *s, unsigned int max, unsigned int *x)
{
    return str_to_uint(s, 0, x) && *x && *x <= max;
}

static char *
parse_sa_fault_word(struct fabric_sa_fault *fault, const char *word)
{
    const char *attr = word_value(word, "attr");
    const char *method = word_value(word, "method");
    const char *count = word_value(word, "count");
    unsigned int x;

    if (attr) {
        return (parse_number(attr, UINT16_MAX, &fault->attr) ? NULL
                : xasprintf("attr=%s: not 1 to 0xffff", attr));
    } else if (count) {
        if (!parse_number(count, UINT32_MAX, &x)) {
            return xasprintf("count=%s: not a number above 0", count);
        }
        fault->left = x;
        return NULL;
    } else if (method) {
        fault->method = (!strcmp(method, "get") ? IB_METHOD_GET
                         : !strcmp(method, "set") ? IB_METHOD_SET
                         : !strcmp(method, "gettable") ? IB_METHOD_GET_TABLE
                         : !strcmp(method, "delete") ? IB_METHOD_DELETE : 0);
        return (fault->method || parse_number(method, UINT8_MAX,
                                              &fault->method)
                ? NULL
                : xasprintf("method=%s: not get, set, gettable, delete or a "
                            "number", method));
    }
    return xasprintf("%s: not attr=ID, method=METHOD or count=N", word);
}

/* Adds a fault of the subnet administrator for requests of the port 'guid'
 * (0: of every port).  Returns as fabric_fault_add(). */
char *
fabric_sa_fault_add(struct fabric *fabric, uint64_t guid, const char *type,
                    const char *const *words, size_t n, unsigned int *idp)
{
    struct fabric_sa_fault new = { .guid = guid };
    const char *status = word_value(type, "status");
    unsigned int x;

    if (!strcmp(type, "ignore")) {
        new.ignore = true;
    } else if (!strcmp(type, "busy")) {
        new.status = IB_MAD_STATUS_BUSY;
    } else if (!strcmp(type, "refuse")) {
        new.status = IB_SA_REQ_DENIED;
    } else if (status && parse_number(status, UINT16_MAX, &x)) {
        new.status = x;
    } else {
        return xasprintf("%s: not ignore, busy, refuse or status=STATUS",
                         type);
    }
    for (size_t i = 0; i < n; i++) {
        char *error = parse_sa_fault_word(&new, words[i]);

        if (error) {
            return error;
        }
    }
    new.id = *idp = fabric->next_fault_id++;
    struct fabric_sa_fault *fault = xmemdup(&new, sizeof new);
    ovs_list_push_back(&fabric->sa_faults, &fault->node);
    return NULL;
}

/* Tells what becomes of a request of 'port'. */
struct fabric_sa_verdict
fabric_sa_fault_check(struct fabric *fabric, const struct fabric_port *port,
                      uint8_t method, uint16_t attr)
{
    struct fabric_sa_verdict verdict = { .ignore = false };
    struct fabric_sa_fault *fault;

    LIST_FOR_EACH (fault, node, &fabric->sa_faults) {
        if ((fault->guid && fault->guid != port->guid)
            || (fault->method && fault->method != method)
            || (fault->attr && fault->attr != attr)) {
            continue;
        }
        fault->n_hits++;
        verdict.ignore = fault->ignore;
        verdict.status = fault->status;
        if (fault->left && !--fault->left) {
            ovs_list_remove(&fault->node);
            free(fault);
        }
        break;
    }
    return verdict;
}

/* Removes fault 'id', of either sort.  Returns false if there is none. */
bool
fabric_fault_remove(struct fabric *fabric, unsigned int id)
{
    struct fabric_sa_fault *sa_fault;
    struct fabric_fault *fault;

    LIST_FOR_EACH (fault, node, &fabric->faults) {
        if (fault->id == id) {
            ovs_list_remove(&fault->node);
            free(fault);
            return true;
        }
    }
    LIST_FOR_EACH (sa_fault, node, &fabric->sa_faults) {
        if (sa_fault->id == id) {
            ovs_list_remove(&sa_fault->node);
            free(sa_fault);
            return true;
        }
    }
    return false;
}

/* Removes all faults.  Packets that are held still leave in their time. */
void
fabric_fault_clear(struct fabric *fabric)
{
    struct fabric_sa_fault *sa_fault;
    struct fabric_fault *fault;

    LIST_FOR_EACH_POP (fault, node, &fabric->faults) {
        free(fault);
    }
    LIST_FOR_EACH_POP (sa_fault, node, &fabric->sa_faults) {
        free(sa_fault);
    }
}

/* Showing faults. */

static char *
guid_to_string(uint64_t guid)
{
    return guid ? xasprintf("%016"PRIx64, guid) : xstrdup("all");
}

static const char *
kinds_to_string(unsigned int kinds)
{
    return kinds == KIND_ALL ? "all" : kinds == KIND_MAD ? "mad" : "data";
}

static const char *
dirs_to_string(const bool dirs[FABRIC_N_DIRS])
{
    return (!dirs[FABRIC_TO_PORT] ? "from"
            : !dirs[FABRIC_FROM_PORT] ? "to" : "both");
}

static double
shown_value(const struct fabric_fault *fault)
{
    return fault->type == FAULT_DELAY ? fault->value : fault->value * 100;
}

void
fabric_fault_format(const struct fabric *fabric, struct ds *ds)
{
    const struct fabric_sa_fault *sa;
    const struct fabric_fault *fault;

    LIST_FOR_EACH (fault, node, &fabric->faults) {
        char *guid = guid_to_string(fault->guid);

        ds_put_format(ds, "%u: port %s %s %g%s kind=%s direction=%s, "
                      "%"PRIu64" hits\n", fault->id, guid,
                      fault_names[fault->type], shown_value(fault),
                      fault->type == FAULT_DELAY ? "ms" : "%",
                      kinds_to_string(fault->kinds),
                      dirs_to_string(fault->dirs), fault->n_hits);
        free(guid);
    }
    LIST_FOR_EACH (sa, node, &fabric->sa_faults) {
        char *guid = guid_to_string(sa->guid);

        ds_put_format(ds, "%u: port %s SA ", sa->id, guid);
        if (sa->ignore) {
            ds_put_cstr(ds, "ignore");
        } else {
            ds_put_format(ds, "status=0x%04"PRIx16" (%s)", sa->status,
                          ib_sa_status_to_string(sa->status));
        }
        if (sa->method) {
            ds_put_format(ds, " method=0x%02x", sa->method);
        }
        if (sa->attr) {
            ds_put_format(ds, " attr=0x%04x", sa->attr);
        }
        if (sa->left) {
            ds_put_format(ds, " count=%llu", sa->left);
        }
        ds_put_format(ds, ", %"PRIu64" hits\n", sa->n_hits);
        free(guid);
    }
}

struct json *
fabric_fault_to_json(const struct fabric *fabric)
{
    struct json *array = json_array_create_empty();
    const struct fabric_sa_fault *sa;
    const struct fabric_fault *fault;

    LIST_FOR_EACH (fault, node, &fabric->faults) {
        struct json *j = json_object_create();

        json_object_put(j, "id", json_integer_create(fault->id));
        json_object_put(j, "port", json_string_create_nocopy(
                            guid_to_string(fault->guid)));
        json_object_put_string(j, "type", fault_names[fault->type]);
        json_object_put(j, "value", json_real_create(shown_value(fault)));
        json_object_put_string(j, "kind", kinds_to_string(fault->kinds));
        json_object_put_string(j, "direction", dirs_to_string(fault->dirs));
        json_object_put(j, "hits", json_integer_create(fault->n_hits));
        json_array_add(array, j);
    }
    LIST_FOR_EACH (sa, node, &fabric->sa_faults) {
        struct json *j = json_object_create();

        json_object_put(j, "id", json_integer_create(sa->id));
        json_object_put(j, "port", json_string_create_nocopy(
                            guid_to_string(sa->guid)));
        json_object_put_string(j, "type", sa->ignore ? "sa-ignore"
                                                     : "sa-status");
        json_object_put(j, "status", json_integer_create(sa->status));
        json_object_put(j, "method", json_integer_create(sa->method));
        json_object_put(j, "attr", json_integer_create(sa->attr));
        json_object_put(j, "left", json_integer_create(sa->left));
        json_object_put(j, "hits", json_integer_create(sa->n_hits));
        json_array_add(array, j);
    }
    return array;
}
