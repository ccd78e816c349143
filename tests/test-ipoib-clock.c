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
#include "test-ipoib-clock.h"

#include "dummy.h"
#include "jsonrpc.h"
#include "latch.h"
#include "openvswitch/poll-loop.h"
#include "ovs-thread.h"
#include "timeval.h"
#include "unixctl.h"
#include "util.h"

/* Open vSwitch offers this as a command only: so here are both ends of one. */

#define SOCKET "clock.ctl"

static struct latch done;

static void *
serve(void *server_)
{
    struct unixctl_server *server = server_;

    while (!latch_is_set(&done)) {
        unixctl_server_run(server);
        unixctl_server_wait(server);
        latch_wait(&done);
        poll_block();
    }
    return NULL;
}

void
test_clock_stop(void)
{
    struct unixctl_server *server;
    struct jsonrpc *client;
    char *result, *error;
    pthread_t thread;

    timeval_dummy_register();
    latch_init(&done);
    ovs_assert(!unixctl_server_create(SOCKET, &server));
    thread = ovs_thread_create("clock", serve, server);
    ovs_assert(!unixctl_client_create(SOCKET, &client));
    ovs_assert(!unixctl_client_transact(client, "time/stop", 0, NULL, &result,
                                        &error));
    ovs_assert(!error);
    free(result);
    jsonrpc_close(client);
    latch_set(&done);
    xpthread_join(thread, NULL);
    unixctl_server_destroy(server);
    latch_destroy(&done);
}
