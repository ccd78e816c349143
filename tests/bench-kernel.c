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

/* bench-kernel CPU SOURCE-IP TARGET-IP: sends packets through the kernel, and
 * tells what CPU time they took.
 *
 * Each line of standard input is a window:
 *
 *     INTERFACE MAC SIZE PACKETS NAMESPACE SINK
 *
 * asks for PACKETS UDP packets with SIZE bytes of IP to MAC by INTERFACE.
 * They should end at the interface SINK of NAMESPACE (a file, as in
 * /run/netns).  The answer is a line:
 *
 *     NS ARRIVED SWITCHES
 *
 * the nanoseconds that this thread was on a processor, how many packets SINK
 * received meanwhile, and how often another thread took our processor.  A
 * packet to a veth device is received, routed and sent on by a softirq in the
 * thread that sends it, so that the time is that of the whole path. */

#include <config.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "bench-clock.h"
#include "util.h"

#define BURST 32
#define MIN_IP 46               /* A frame of 64 bytes, with its FCS. */

struct window {
    char interface[IFNAMSIZ];
    struct ether_addr mac;
    unsigned int size;
    unsigned int n;
    char netns[128];
    char sink[IFNAMSIZ];
};

static struct in_addr source, target;

/* As /proc/net/dev of namespace 'netns' has it. */
static unsigned long long int
packets_received(const char *netns, const char *interface)
{
    int home = open("/proc/thread-self/ns/net", O_RDONLY);
    int there = open(netns, O_RDONLY);
    unsigned long long int n = 0;
    size_t len = strlen(interface);
    bool found = false;
    char line[512];

    if (home < 0 || there < 0 || setns(there, CLONE_NEWNET)) {
        ovs_fatal(errno, "%s", netns);
    }

    FILE *file = fopen("/proc/thread-self/net/dev", "r");
    while (file && !found && fgets(line, sizeof line, file)) {
        char *name = line + strspn(line, " ");

        found = (!strncmp(name, interface, len) && name[len] == ':'
                 && sscanf(name + len + 1, "%*u %llu", &n) == 1);
    }
    if (!found) {
        ovs_fatal(0, "%s: no interface %s", netns, interface);
    }
    fclose(file);
    if (setns(home, CLONE_NEWNET)) {
        ovs_fatal(errno, "setns");
    }
    close(home);
    close(there);
    return n;
}

static uint16_t
header_sum(const struct iphdr *ip)
{
    const uint16_t *p = (const uint16_t *) ip;
    uint32_t sum = 0;

    for (size_t i = 0; i < sizeof *ip / 2; i++) {
        sum += p[i];
    }
    sum = (sum & 0xffff) + (sum >> 16);
    return ~(sum + (sum >> 16));
}

/* The size of the frame. */
static size_t
make_frame(uint8_t *frame, const struct window *w)
{
    struct iphdr ip = {
        .version = 4, .ihl = 5, .tot_len = htons(w->size), .ttl = 64,
        .protocol = IPPROTO_UDP,
        .saddr = source.s_addr, .daddr = target.s_addr,
    };
    struct udphdr udp = {
        .source = htons(9), .dest = htons(9),
        .len = htons(w->size - sizeof ip),
    };
    const struct ether_header eth = {
        .ether_shost = { 2, 0, 0, 0, 0, 1 }, .ether_type = htons(ETHERTYPE_IP),
    };

    ip.check = header_sum(&ip);
    memcpy(frame, &eth, sizeof eth);
    memcpy(frame, &w->mac, sizeof w->mac);
    memcpy(frame + sizeof eth, &ip, sizeof ip);
    memcpy(frame + sizeof eth + sizeof ip, &udp, sizeof udp);
    return sizeof eth + w->size;
}

static int
open_socket(const char *interface)
{
    struct sockaddr_ll sll = {
        .sll_family = AF_PACKET, .sll_ifindex = if_nametoindex(interface),
    };
    int fd = socket(AF_PACKET, SOCK_RAW, 0);

    if (fd < 0 || !sll.sll_ifindex
        || bind(fd, (struct sockaddr *) &sll, sizeof sll)) {
        ovs_fatal(errno, "%s", interface);
    }
    return fd;
}

static unsigned long long int
cpu_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return ts.tv_sec * 1000000000ULL + ts.tv_nsec;
}

static void
send_window(const struct window *w)
{
    static uint8_t frame[65536];
    struct iovec iov = { .iov_base = frame, .iov_len = make_frame(frame, w) };
    struct mmsghdr msgs[BURST];
    int fd = open_socket(w->interface);

    memset(msgs, 0, sizeof msgs);
    for (size_t i = 0; i < BURST; i++) {
        msgs[i].msg_hdr.msg_iov = &iov;
        msgs[i].msg_hdr.msg_iovlen = 1;
    }

    unsigned long long int arrived = packets_received(w->netns, w->sink);
    sendmmsg(fd, msgs, BURST, 0);           /* Warms up. */
    arrived += BURST;

    long int switches = bench_switches();
    unsigned long long int start = cpu_ns();
    for (unsigned int n = 0; n < w->n; n += BURST) {
        if (sendmmsg(fd, msgs, BURST, 0) != BURST) {
            ovs_fatal(errno, "%s", w->interface);
        }
    }
    unsigned long long int ns = cpu_ns() - start;
    switches = bench_switches() - switches;
    printf("%llu %llu %ld\n", ns,
           packets_received(w->netns, w->sink) - arrived, switches);
    fflush(stdout);
    close(fd);
}

static bool
read_window(const char *line, struct window *w)
{
    unsigned char *m = w->mac.ether_addr_octet;

    return sscanf(line, "%15s %hhx:%hhx:%hhx:%hhx:%hhx:%hhx %u %u %127s %15s",
                  w->interface, &m[0], &m[1], &m[2], &m[3], &m[4], &m[5],
                  &w->size, &w->n, w->netns, w->sink) == 11
           && w->size >= MIN_IP && w->size <= 65000 && w->n % BURST == 0;
}

int
main(int argc, char *argv[])
{
    char line[512];
    cpu_set_t cpus;

    set_program_name(argv[0]);
    if (argc != 4 || !inet_pton(AF_INET, argv[2], &source)
        || !inet_pton(AF_INET, argv[3], &target)) {
        ovs_fatal(0, "usage: %s CPU SOURCE-IP TARGET-IP", argv[0]);
    }
    CPU_ZERO(&cpus);
    CPU_SET(atoi(argv[1]), &cpus);
    if (sched_setaffinity(0, sizeof cpus, &cpus)) {
        ovs_fatal(errno, "CPU %s", argv[1]);
    }
    while (fgets(line, sizeof line, stdin)) {
        struct window w;

        if (!read_window(line, &w)) {
            ovs_fatal(0, "not a window: %s", line);
        }
        send_window(&w);
    }
    return 0;
}
