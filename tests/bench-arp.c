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

/* bench-arp INTERFACE N FIRST-HOST FIRST-TARGET SECONDS: N hosts ask by ARP at
 * once, each for another target.
 *
 * Host i has the IP address FIRST-HOST + i, a MAC address of its own, and asks
 * for FIRST-TARGET + i.  Who has no answer after a second asks again, as Linux
 * does, until all have one or SECONDS are over.  Prints, for each answer in
 * turn, how many microseconds after the start it came, by the kernel's time
 * stamps. */

#include <config.h>

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/if_ether.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "util.h"

#define MAX_HOSTS 65536
#define BURST 32
#define FRAME_LEN 60
#define RETRY_NS 1000000000LL
#define BUFFER (64 << 20)

struct frame {
    struct ether_header eth;
    struct ether_arp arp;
    uint8_t pad[FRAME_LEN - sizeof(struct ether_header)
                - sizeof(struct ether_arp)];
};
BUILD_ASSERT_DECL(sizeof(struct frame) == FRAME_LEN);

static struct frame questions[MAX_HOSTS];
static bool answered[MAX_HOSTS];
static unsigned int n_hosts, n_answered;
static uint32_t first_host, first_target;

static long long int
now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    return ts.tv_sec * 1000000000LL + ts.tv_nsec;
}

static void
compose(struct frame *frame, unsigned int i)
{
    const uint8_t mac[ETH_ALEN] = { 0x52, 0x54, 0x01, 0, i >> 8, i };
    uint32_t spa = htonl(first_host + i);
    uint32_t tpa = htonl(first_target + i);

    memset(frame, 0, sizeof *frame);
    memset(frame->eth.ether_dhost, 0xff, ETH_ALEN);
    memcpy(frame->eth.ether_shost, mac, ETH_ALEN);
    frame->eth.ether_type = htons(ETHERTYPE_ARP);
    frame->arp.arp_hrd = htons(ARPHRD_ETHER);
    frame->arp.arp_pro = htons(ETHERTYPE_IP);
    frame->arp.arp_hln = ETH_ALEN;
    frame->arp.arp_pln = 4;
    frame->arp.arp_op = htons(ARPOP_REQUEST);
    memcpy(frame->arp.arp_sha, mac, ETH_ALEN);
    memcpy(frame->arp.arp_spa, &spa, 4);
    memcpy(frame->arp.arp_tpa, &tpa, 4);
}

static int
open_socket(const char *interface)
{
    struct sockaddr_ll sll = {
        .sll_family = AF_PACKET,
        .sll_protocol = htons(ETHERTYPE_ARP),
        .sll_ifindex = if_nametoindex(interface),
    };
    struct packet_mreq all = {
        .mr_ifindex = sll.sll_ifindex, .mr_type = PACKET_MR_PROMISC,
    };
    int fd = socket(AF_PACKET, SOCK_RAW, 0);
    int size = BUFFER, on = 1;

    if (fd < 0 || !sll.sll_ifindex
        || setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size)
        || setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size)
        || setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on)
        || setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on)
        || setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &all, sizeof all)
        || bind(fd, (struct sockaddr *) &sll, sizeof sll)) {
        ovs_fatal(errno, "%s", interface);
    }
    return fd;
}

/* Asks for everybody who has no answer. */
static void
ask(int fd)
{
    struct mmsghdr msgs[BURST];
    struct iovec iovs[BURST];
    unsigned int n = 0;

    for (unsigned int i = 0; i < n_hosts; i++) {
        if (!answered[i]) {
            iovs[n].iov_base = &questions[i];
            iovs[n].iov_len = sizeof questions[i];
            memset(&msgs[n], 0, sizeof msgs[n]);
            msgs[n].msg_hdr.msg_iov = &iovs[n];
            msgs[n].msg_hdr.msg_iovlen = 1;
            n++;
        }
        if (n == BURST || (n && i + 1 == n_hosts)) {
            if (sendmmsg(fd, msgs, n, 0) != n) {
                ovs_fatal(errno, "sendmmsg");
            }
            n = 0;
        }
    }
}

/* The kernel's time of the message. */
static long long int
stamp(struct msghdr *msg)
{
    struct timespec ts;
    struct cmsghdr *cmsg;

    for (cmsg = CMSG_FIRSTHDR(msg); cmsg; cmsg = CMSG_NXTHDR(msg, cmsg)) {
        if (cmsg->cmsg_level == SOL_SOCKET
            && cmsg->cmsg_type == SCM_TIMESTAMPNS) {
            memcpy(&ts, CMSG_DATA(cmsg), sizeof ts);
            return ts.tv_sec * 1000000000LL + ts.tv_nsec;
        }
    }
    ovs_fatal(0, "no time stamp");
}

/* Takes all answers that are there. */
static void
hear(int fd, long long int start)
{
    struct frame frame;
    char control[CMSG_SPACE(sizeof(struct timespec))];
    struct iovec iov = { .iov_base = &frame, .iov_len = sizeof frame };
    struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

    for (;;) {
        msg.msg_control = control;
        msg.msg_controllen = sizeof control;

        ssize_t n = recvmsg(fd, &msg, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            return;
        } else if (n < 0) {
            ovs_fatal(errno, "recvmsg");
        }

        uint32_t tpa, spa;
        memcpy(&tpa, frame.arp.arp_tpa, 4);
        memcpy(&spa, frame.arp.arp_spa, 4);
        unsigned int i = ntohl(tpa) - first_host;
        if (n >= sizeof frame.eth + sizeof frame.arp
            && frame.arp.arp_op == htons(ARPOP_REPLY)
            && i < n_hosts && ntohl(spa) == first_target + i
            && !memcmp(frame.eth.ether_dhost, questions[i].eth.ether_shost,
                       ETH_ALEN)
            && !answered[i]) {
            answered[i] = true;
            n_answered++;
            printf("%.1f\n", (stamp(&msg) - start) / 1000.0);
        }
    }
}

int
main(int argc, char *argv[])
{
    struct in_addr host, target;

    set_program_name(argv[0]);
    n_hosts = argc == 6 ? atoi(argv[2]) : 0;
    if (!n_hosts || n_hosts > MAX_HOSTS || !inet_pton(AF_INET, argv[3], &host)
        || !inet_pton(AF_INET, argv[4], &target)) {
        ovs_fatal(0, "usage: %s INTERFACE N FIRST-HOST FIRST-TARGET SECONDS",
                  argv[0]);
    }
    first_host = ntohl(host.s_addr);
    first_target = ntohl(target.s_addr);
    for (unsigned int i = 0; i < n_hosts; i++) {
        compose(&questions[i], i);
    }

    int fd = open_socket(argv[1]);
    long long int start = now_ns();
    long long int end = start + atof(argv[5]) * 1e9;
    long long int again = start;
    while (n_answered < n_hosts && now_ns() < end) {
        if (now_ns() >= again) {
            ask(fd);
            again += RETRY_NS;
        }

        struct pollfd pollfd = { .fd = fd, .events = POLLIN };
        poll(&pollfd, 1, 1);
        hear(fd, start);
    }
    return 0;
}
