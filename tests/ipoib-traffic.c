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

/* Paced, numbered UDP packets between network namespaces, each of which is
 * accounted for.
 *
 *     ipoib-ovstest ipoib-traffic [--rate=PPS] [--ready=FILE] FLOW...
 *
 * FLOW is FROM,SOURCE,TO,DESTINATION[,PPS]: two namespaces of "ip netns" and
 * two IP addresses; DESTINATION may be a broadcast address.  One process has
 * the sockets of both ends, and thus one clock.
 *
 * Each flow is warmed up, until one of its packets has arrived; FILE is made
 * once they all are.  From then on its packets are numbered and counted, until
 * SIGTERM; what is under way then is waited for.  The report says of each flow
 * how many packets were sent, how many of them did not arrive, arrived twice
 * or out of order, how many were lost in the last second, and the longest time
 * between two arrivals; its last line is "end".  Fails if a socket has dropped
 * something, which would be the receiver's fault. */

#include <config.h>
#undef NDEBUG
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "bitmap.h"
#include "ovstest.h"
#include "socket-util.h"
#include "util.h"

#define FIRST_PORT 7100
#define PAYLOAD_LEN 64
#define MAX_PACKETS (1u << 20)  /* Of a flow. */
#define WARM_UP_INTERVAL 20     /* Between packets that warm up, ms. */
#define WARM_UP_MAX 20000       /* ms. */
#define SETTLE 300              /* After warming up, ms. */
#define DRAIN 1000              /* After the last packet, ms. */
#define BURST 16                /* Packets of a flow that are sent at once. */
#define BUFFER (8 * 1024 * 1024)

struct payload {
    uint32_t magic;             /* Of this run. */
    uint32_t seq;               /* UINT32_MAX: warms up. */
};

struct flow {
    char *name, *from, *source, *to, *destination;
    int tx, rx;
    struct sockaddr_storage dst;
    unsigned int rate;          /* Packets a second. */
    bool warm;
    uint32_t sent, received, duplicated, reordered, failed;
    uint32_t highest;           /* Sequence number that has arrived, plus 1. */
    long long int last, gap;    /* Arrival; longest time between two, us. */
    long long int warmed;       /* When the last warming packet was sent. */
    uint32_t overflow;          /* What the kernel dropped at 'rx'. */
    unsigned long *seen;
};

static uint32_t run_magic;
static volatile sig_atomic_t ended;

static void
end(int signo OVS_UNUSED)
{
    ended = 1;
}

static long long int
now_usec(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * 1000000LL + ts.tv_nsec / 1000;
}

static void
enter_namespace(const char *name)
{
    char *path = xasprintf("/run/netns/%s", name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0 || setns(fd, CLONE_NEWNET)) {
        ovs_fatal(errno, "%s: cannot enter the namespace", path);
    }
    close(fd);
    free(path);
}

static socklen_t
parse_address(const char *s, uint16_t port, struct sockaddr_storage *ss)
{
    struct sockaddr_in6 *sin6 = (struct sockaddr_in6 *) ss;
    struct sockaddr_in *sin = (struct sockaddr_in *) ss;

    memset(ss, 0, sizeof *ss);
    if (inet_pton(AF_INET, s, &sin->sin_addr) == 1) {
        sin->sin_family = AF_INET;
        sin->sin_port = htons(port);
        return sizeof *sin;
    } else if (inet_pton(AF_INET6, s, &sin6->sin6_addr) == 1) {
        sin6->sin6_family = AF_INET6;
        sin6->sin6_port = htons(port);
        return sizeof *sin6;
    }
    ovs_fatal(0, "%s: not an IP address", s);
}

/* Makes a UDP socket in the namespace 'ns', bound to 'ss'. */
static int
make_socket(const char *ns, const struct sockaddr_storage *ss, socklen_t len)
{
    int size = BUFFER, on = 1, fd;

    enter_namespace(ns);
    fd = socket(ss->ss_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0
        || setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size)
        || setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size)
        || setsockopt(fd, SOL_SOCKET, SO_RXQ_OVFL, &on, sizeof on)
        || setsockopt(fd, SOL_SOCKET, SO_BROADCAST, &on, sizeof on)
        || bind(fd, (const struct sockaddr *) ss, len)) {
        ovs_fatal(errno, "%s: cannot make a socket", ns);
    }
    return fd;
}

static void
flow_open(struct flow *flow, const char *spec, int index, unsigned int rate)
{
    char *copy = xstrdup(spec), *save = NULL, *own_rate;
    struct sockaddr_storage ss;
    socklen_t len;

    memset(flow, 0, sizeof *flow);
    flow->name = xstrdup(spec);
    flow->from = strtok_r(copy, ",", &save);
    flow->source = strtok_r(NULL, ",", &save);
    flow->to = strtok_r(NULL, ",", &save);
    flow->destination = strtok_r(NULL, ",", &save);
    own_rate = strtok_r(NULL, ",", &save);
    flow->rate = own_rate ? atoi(own_rate) : rate;
    if (!flow->destination || !flow->rate) {
        ovs_fatal(0, "%s: FROM,SOURCE,TO,DESTINATION is needed", spec);
    }
    len = parse_address(flow->source, 0, &ss);
    flow->tx = make_socket(flow->from, &ss, len);
    len = parse_address(flow->destination, FIRST_PORT + index, &flow->dst);
    ss = flow->dst;
    if (ss.ss_family == AF_INET) {
        /* It may be a broadcast address. */
        ((struct sockaddr_in *) &ss)->sin_addr.s_addr = INADDR_ANY;
    }
    flow->rx = make_socket(flow->to, &ss, len);
    flow->seen = bitmap_allocate(MAX_PACKETS);
}

static void
flow_send(struct flow *flow, uint32_t seq)
{
    uint8_t buf[PAYLOAD_LEN] = { 0 };
    struct payload payload = { .magic = run_magic, .seq = seq };
    socklen_t len = flow->dst.ss_family == AF_INET
                    ? sizeof(struct sockaddr_in)
                    : sizeof(struct sockaddr_in6);

    memcpy(buf, &payload, sizeof payload);
    if (sendto(flow->tx, buf, sizeof buf, 0,
               (const struct sockaddr *) &flow->dst, len) < 0) {
        flow->failed++;
    }
}

static void
flow_arrival(struct flow *flow, const struct payload *payload,
             long long int now)
{
    uint32_t seq = payload->seq;

    if (payload->magic != run_magic) {
        return;
    }
    flow->warm = true;
    if (seq >= MAX_PACKETS) {
        return;
    }
    if (bitmap_is_set(flow->seen, seq)) {
        flow->duplicated++;
        return;
    }
    bitmap_set1(flow->seen, seq);
    flow->received++;
    if (seq < flow->highest) {
        flow->reordered++;
    } else {
        flow->highest = seq + 1;
    }
    if (flow->last && now - flow->last > flow->gap) {
        flow->gap = now - flow->last;
    }
    flow->last = now;
}

static void
flow_receive(struct flow *flow, long long int now)
{
    for (int i = 0; i < 256; i++) {
        union {
            char buf[CMSG_SPACE(sizeof(uint32_t))];
            struct cmsghdr align;
        } control;
        uint8_t buf[2048];
        struct iovec iov = { .iov_base = buf, .iov_len = sizeof buf };
        struct msghdr msg = {
            .msg_iov = &iov, .msg_iovlen = 1,
            .msg_control = control.buf, .msg_controllen = sizeof control,
        };
        struct cmsghdr *cmsg;
        ssize_t n = recvmsg(flow->rx, &msg, 0);

        if (n < 0) {
            if (errno == EAGAIN) {
                break;
            }
            continue;           /* An ICMP error. */
        }
        for (cmsg = CMSG_FIRSTHDR(&msg); cmsg;
             cmsg = CMSG_NXTHDR(&msg, cmsg)) {
            if (cmsg->cmsg_level == SOL_SOCKET
                && cmsg->cmsg_type == SO_RXQ_OVFL) {
                memcpy(&flow->overflow, CMSG_DATA(cmsg),
                       sizeof flow->overflow);
            }
        }
        if (n >= sizeof(struct payload)) {
            struct payload payload;

            memcpy(&payload, buf, sizeof payload);
            flow_arrival(flow, &payload, now);
        }
    }
}

/* Receives for about 'msec' from all flows. */
static void
receive(struct flow *flows, size_t n, int msec)
{
    struct pollfd *pfds = xcalloc(n, sizeof *pfds);
    long long int now;

    for (size_t i = 0; i < n; i++) {
        pfds[i] = (struct pollfd) { .fd = flows[i].rx, .events = POLLIN };
    }
    poll(pfds, n, msec);
    now = now_usec();
    for (size_t i = 0; i < n; i++) {
        if (pfds[i].revents) {
            flow_receive(&flows[i], now);
        }
    }
    free(pfds);
}

static void
warm_up(struct flow *flows, size_t n)
{
    long long int start = now_usec(), settled = 0, now;

    for (;;) {
        size_t n_warm = 0;

        now = now_usec();
        for (size_t i = 0; i < n; i++) {
            n_warm += flows[i].warm;
            if (!flows[i].warm
                && now >= flows[i].warmed + WARM_UP_INTERVAL * 1000) {
                flows[i].warmed = now;
                flow_send(&flows[i], UINT32_MAX);
            }
        }
        if (n_warm < n) {
            settled = 0;
        } else if (!settled) {
            settled = now;
        } else if (now >= settled + SETTLE * 1000) {
            break;
        }
        if (now > start + WARM_UP_MAX * 1000LL) {
            for (size_t i = 0; i < n; i++) {
                if (!flows[i].warm) {
                    printf("%s: nothing arrives\n", flows[i].name);
                }
            }
            exit(1);
        }
        receive(flows, n, 5);
    }
    for (size_t i = 0; i < n; i++) {
        flows[i].failed = 0;
    }
}

static void
run(struct flow *flows, size_t n)
{
    long long int start = now_usec(), now;
    bool full = false;

    do {
        bool behind = false;

        now = now_usec();
        for (size_t i = 0; i < n; i++) {
            struct flow *flow = &flows[i];
            uint32_t due = MIN((now - start) * flow->rate / 1000000,
                               MAX_PACKETS);

            for (int j = 0; j < BURST && flow->sent < due; j++) {
                flow_send(flow, flow->sent++);
            }
            behind |= flow->sent < due;
            full |= flow->sent == MAX_PACKETS;
        }
        receive(flows, n, !behind);
    } while (!ended && !full);

    for (start = now_usec(); now_usec() < start + DRAIN * 1000;) {
        receive(flows, n, 10);
    }
}

/* Packets of the last second that have not arrived. */
static uint32_t
flow_late_losses(const struct flow *flow)
{
    uint32_t first = flow->sent > flow->rate ? flow->sent - flow->rate : 0;
    uint32_t lost = 0;

    for (uint32_t seq = first; seq < flow->sent; seq++) {
        lost += !bitmap_is_set(flow->seen, seq);
    }
    return lost;
}

static void
ipoib_traffic_main(int argc, char *argv[])
{
    static const struct option options[] = {
        { "rate", required_argument, NULL, 'r' },
        { "ready", required_argument, NULL, 'R' },
        { NULL, 0, NULL, 0 },
    };
    unsigned int rate = 2000, overflow = 0;
    const char *ready = NULL;
    struct flow *flows;
    size_t n;
    int c;

    set_program_name(argv[0]);
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (c == 'r' && !str_to_uint(optarg, 10, &rate)) {
            ovs_fatal(0, "--rate=%s: not a number", optarg);
        } else if (c == 'R') {
            ready = optarg;
        } else if (c == '?') {
            exit(2);
        }
    }
    n = argc - optind;
    ovs_assert(n);
    run_magic = getpid() ^ (uint32_t) now_usec();
    signal(SIGTERM, end);
    signal(SIGINT, end);
    flows = xcalloc(n, sizeof *flows);
    for (size_t i = 0; i < n; i++) {
        flow_open(&flows[i], argv[optind + i], i, rate);
    }
    warm_up(flows, n);
    if (ready) {
        int fd = creat(ready, 0666);

        ovs_assert(fd >= 0);
        close(fd);
    }
    run(flows, n);
    for (size_t i = 0; i < n; i++) {
        const struct flow *flow = &flows[i];

        printf("%s: sent %"PRIu32" lost %"PRIu32" duplicated %"PRIu32
               " reordered %"PRIu32" unsent %"PRIu32" lately %"PRIu32
               " gap %lld ms\n", flow->name, flow->sent,
               flow->sent - flow->received, flow->duplicated,
               flow->reordered, flow->failed, flow_late_losses(flow),
               flow->gap / 1000);
        overflow += flow->overflow;
    }
    if (overflow) {
        printf("%u packets dropped by the receivers' sockets\n", overflow);
        exit(1);
    }
    printf("end\n");
    exit(0);
}

OVSTEST_REGISTER("ipoib-traffic", ipoib_traffic_main);
