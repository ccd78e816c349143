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

#ifndef IPOIB_EVENTS_H
#define IPOIB_EVENTS_H 1

/* What has happened to a port, for people: a log in memory of the last
 * IPOIB_N_EVENTS events with their wall-clock times, each of which is also one
 * line in the log of the daemon.
 *
 * Events of one kind that come in quick succession (2000 groups are refused)
 * are counted and not kept, so that they push nothing else out.
 *
 * Thread-safety: none; the owner's lock. */

#include <stdbool.h>
#include <stddef.h>
#include "compiler.h"

#define IPOIB_N_EVENTS 100

enum ipoib_event_type {
    IPOIB_EVENT_PORT_STATE,
    IPOIB_EVENT_LID,
    IPOIB_EVENT_SM,
    IPOIB_EVENT_PKEYS,
    IPOIB_EVENT_GID,
    IPOIB_EVENT_MTU,
    IPOIB_EVENT_REREGISTER,
    IPOIB_EVENT_DEVICE,
    IPOIB_EVENT_SA,
    IPOIB_EVENT_QP,
    IPOIB_EVENT_GROUP,
    IPOIB_EVENT_PEERS,
    IPOIB_EVENT_UP,
    IPOIB_EVENT_DOWN,
};
/* "port-state", "lid" ... */
const char *ipoib_event_type_to_string(enum ipoib_event_type);

struct ipoib_event {
    long long int when;         /* time_wall_msec(). */
    enum ipoib_event_type type;
    char *text;
    unsigned int n_more;        /* Like it, which were not kept. */
};

struct ipoib_events {
    struct ipoib_event *events; /* IPOIB_N_EVENTS at most. */
    size_t allocated;
    size_t n;                   /* Ever added. */
    unsigned int n_alike;       /* Of the last one's type, in a row. */
};

void ipoib_events_init(struct ipoib_events *);
void ipoib_events_destroy(struct ipoib_events *);

/* Adds an event that concerns 'who' (a device or a port), who is named in the
 * daemon's log only. */
void ipoib_event_add(struct ipoib_events *, const char *who,
                     enum ipoib_event_type, const char *format, ...)
    OVS_PRINTF_FORMAT(4, 5);

/* Calls 'cb' for the last IPOIB_N_EVENTS of 'a' and 'b' together, oldest
 * first. */
void ipoib_events_merge(const struct ipoib_events *a,
                        const struct ipoib_events *b,
                        void (*cb)(const struct ipoib_event *, void *aux),
                        void *aux);

#endif /* ipoib-events.h */
