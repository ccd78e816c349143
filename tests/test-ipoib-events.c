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
#include "ipoib-events.h"

#include <stdlib.h>
#include <string.h>
#include "ovstest.h"
#include "util.h"

struct seen {
    size_t n;
    char first[32], last[32];
    unsigned int n_more;
};

static void
see(const struct ipoib_event *event, void *seen_)
{
    struct seen *seen = seen_;

    if (!seen->n++) {
        ovs_strlcpy(seen->first, event->text, sizeof seen->first);
    }
    ovs_strlcpy(seen->last, event->text, sizeof seen->last);
    seen->n_more += event->n_more;
}

static void
check(const struct ipoib_events *a, const struct ipoib_events *b, size_t n,
      const char *first, const char *last, unsigned int n_more)
{
    struct seen seen = { .n = 0 };

    ipoib_events_merge(a, b, see, &seen);
    if (seen.n != n || strcmp(seen.first, first) || strcmp(seen.last, last)
        || seen.n_more != n_more) {
        ovs_fatal(0, "%"PRIuSIZE" events, %s to %s, %u more, instead of "
                  "%"PRIuSIZE", %s to %s, %u", seen.n, seen.first, seen.last,
                  seen.n_more, n, first, last, n_more);
    }
}

static void
test_ipoib_events_main(int argc OVS_UNUSED, char *argv[])
{
    struct ipoib_events a, b;

    set_program_name(argv[0]);
    ipoib_events_init(&a);
    ipoib_events_init(&b);
    check(&a, &b, 0, "", "", 0);

    /* A flood of one kind is counted, and leaves others alone. */
    ipoib_event_add(&a, "test", IPOIB_EVENT_LID, "LID %d", 1);
    for (int i = 0; i < 1000; i++) {
        ipoib_event_add(&a, "test", IPOIB_EVENT_GROUP, "group %d", i);
    }
    check(&a, &b, 21, "LID 1", "group 19", 980);
    ipoib_event_add(&a, "test", IPOIB_EVENT_LID, "LID %d", 2);
    check(&a, &b, 22, "LID 1", "LID 2", 980);
    ipoib_event_add(&a, "test", IPOIB_EVENT_GROUP, "again");
    check(&a, &b, 23, "LID 1", "again", 980);

    /* The last 100 stay; both logs together have no more. */
    for (int i = 0; i < 150; i++) {
        ipoib_event_add(&b, "test",
                        i % 2 ? IPOIB_EVENT_UP : IPOIB_EVENT_DOWN, "b%d", i);
    }
    ipoib_events_destroy(&a);
    ipoib_events_init(&a);
    check(&a, &b, 100, "b50", "b149", 0);
    check(&b, &a, 100, "b50", "b149", 0);
    ipoib_event_add(&a, "test", IPOIB_EVENT_GID, "newest");
    check(&b, &a, 100, "b51", "newest", 0);
    ipoib_events_destroy(&a);
    ipoib_events_destroy(&b);
}

OVSTEST_REGISTER("test-ipoib-events", test_ipoib_events_main);
