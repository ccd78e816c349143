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
#include "ipoib-events.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "openvswitch/vlog.h"
#include "timeval.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(ipoib_events);

/* So many events of one type in a row are kept, and further ones only if the
 * last of them is older than this, in ms. */
#define MAX_ALIKE 20
#define ALIKE_TIME 10000

const char *
ipoib_event_type_to_string(enum ipoib_event_type type)
{
    switch (type) {
    case IPOIB_EVENT_PORT_STATE: return "port-state";
    case IPOIB_EVENT_LID: return "lid";
    case IPOIB_EVENT_SM: return "sm";
    case IPOIB_EVENT_PKEYS: return "pkeys";
    case IPOIB_EVENT_GID: return "gid";
    case IPOIB_EVENT_MTU: return "mtu";
    case IPOIB_EVENT_REREGISTER: return "reregister";
    case IPOIB_EVENT_DEVICE: return "device";
    case IPOIB_EVENT_SA: return "sa";
    case IPOIB_EVENT_QP: return "queue-pair";
    case IPOIB_EVENT_GROUP: return "group";
    case IPOIB_EVENT_PEERS: return "peers";
    case IPOIB_EVENT_UP: return "up";
    case IPOIB_EVENT_DOWN: return "down";
    default: OVS_NOT_REACHED();
    }
}

void
ipoib_events_init(struct ipoib_events *log)
{
    memset(log, 0, sizeof *log);
}

void
ipoib_events_destroy(struct ipoib_events *log)
{
    for (size_t i = 0; i < MIN(log->n, IPOIB_N_EVENTS); i++) {
        free(log->events[i].text);
    }
    free(log->events);
}

/* The event before the next one, or NULL. */
static struct ipoib_event *
events_last(struct ipoib_events *log)
{
    return log->n ? &log->events[(log->n - 1) % IPOIB_N_EVENTS] : NULL;
}

/* True if an event of 'type' now is one too many of its kind. */
static bool
events_is_flood(struct ipoib_events *log, enum ipoib_event_type type,
                long long int now)
{
    const struct ipoib_event *last = events_last(log);

    if (!last || last->type != type || now - last->when > ALIKE_TIME) {
        log->n_alike = 0;
    }
    return ++log->n_alike > MAX_ALIKE;
}

void
ipoib_event_add(struct ipoib_events *log, const char *who,
                enum ipoib_event_type type, const char *format, ...)
{
    long long int now = time_wall_msec();
    struct ipoib_event *event;
    va_list args;

    if (events_is_flood(log, type, now)) {
        events_last(log)->n_more++;
        return;
    }
    if (log->n < IPOIB_N_EVENTS) {
        if (log->n == log->allocated) {
            log->events = x2nrealloc(log->events, &log->allocated,
                                     sizeof *log->events);
        }
    } else {
        free(log->events[log->n % IPOIB_N_EVENTS].text);
    }
    event = &log->events[log->n++ % IPOIB_N_EVENTS];
    event->when = now;
    event->type = type;
    event->n_more = 0;
    va_start(args, format);
    event->text = xvasprintf(format, args);
    va_end(args);
    VLOG_INFO("%s: %s", who, event->text);
}

/* How many events 'log' has, and in '*first' the number of the oldest. */
static size_t
events_span(const struct ipoib_events *log, size_t *first)
{
    size_t n = MIN(log->n, IPOIB_N_EVENTS);

    *first = log->n - n;
    return n;
}

static const struct ipoib_event *
events_at(const struct ipoib_events *log, size_t i)
{
    return i < log->n ? &log->events[i % IPOIB_N_EVENTS] : NULL;
}

void
ipoib_events_merge(const struct ipoib_events *a, const struct ipoib_events *b,
                   void (*cb)(const struct ipoib_event *, void *aux),
                   void *aux)
{
    size_t i, j;
    size_t n = events_span(a, &i) + events_span(b, &j);

    for (; n; n--) {
        const struct ipoib_event *ea = events_at(a, i);
        const struct ipoib_event *eb = events_at(b, j);
        bool from_a = ea && (!eb || ea->when <= eb->when);

        i += from_a;
        j += !from_a;
        if (n <= IPOIB_N_EVENTS) {
            cb(from_a ? ea : eb, aux);
        }
    }
}
