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
#include "fabric-pcap.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include "byte-order.h"
#include "ipoib-wire.h"
#include "openvswitch/types.h"
#include "util.h"

#define PCAP_MAGIC 0xa1b2c3d4
#define PCAP_LINKTYPE_ERF 197

/* In the byte order of the machine, as the magic tells the reader. */
struct pcap_file_header {
    uint32_t magic;
    uint16_t major, minor;
    int32_t zone;
    uint32_t accuracy;
    uint32_t snaplen;
    uint32_t linktype;
};
BUILD_ASSERT_DECL(sizeof(struct pcap_file_header) == 24);

struct pcap_record_header {
    uint32_t sec, usec;
    uint32_t caplen, len;
};
BUILD_ASSERT_DECL(sizeof(struct pcap_record_header) == 16);

#define ERF_TYPE_INFINIBAND 21
#define ERF_FLAG_VARYING_LENGTH 0x04
struct erf_header {
    uint8_t timestamp[8];       /* Little-endian, 32.32 seconds. */
    uint8_t type;
    uint8_t flags;
    ovs_be16 rlen;              /* With this header. */
    ovs_be16 loss;
    ovs_be16 wlen;
};
BUILD_ASSERT_DECL(sizeof(struct erf_header) == 16);

struct fabric_pcap {
    char *name;
    int fd;
};

/* Starts a capture in a new file 'file_name'.  Returns 0 and stores it in
 * '*pcapp', or a positive errno value. */
int
fabric_pcap_open(const char *file_name, struct fabric_pcap **pcapp)
{
    struct pcap_file_header header = {
        .magic = PCAP_MAGIC,
        .major = 2,
        .minor = 4,
        .snaplen = 65535,
        .linktype = PCAP_LINKTYPE_ERF,
    };
    struct fabric_pcap *pcap;
    int fd;

    *pcapp = NULL;
    fd = open(file_name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) {
        return errno;
    }
    if (write(fd, &header, sizeof header) != sizeof header) {
        int error = errno ? errno : EIO;

        close(fd);
        return error;
    }

    pcap = xmalloc(sizeof *pcap);
    pcap->name = xstrdup(file_name);
    pcap->fd = fd;
    *pcapp = pcap;
    return 0;
}

void
fabric_pcap_close(struct fabric_pcap *pcap)
{
    if (pcap) {
        close(pcap->fd);
        free(pcap->name);
        free(pcap);
    }
}

/* Appends the packet of 'n' bytes from the LRH to the VCRC.  It is in the file
 * when the function returns.  Returns 0 or a positive errno value, after which
 * the caller should close the capture. */
int
fabric_pcap_write(struct fabric_pcap *pcap, const void *packet, size_t n)
{
    struct pcap_record_header record;
    struct erf_header erf;
    struct timeval now;
    uint64_t stamp;
    ssize_t written;

    gettimeofday(&now, NULL);
    stamp = ((uint64_t) now.tv_sec << 32
             | ((uint64_t) now.tv_usec << 32) / 1000000);

    memset(&erf, 0, sizeof erf);
    for (int i = 0; i < 8; i++) {
        erf.timestamp[i] = stamp >> (8 * i);
    }
    erf.type = ERF_TYPE_INFINIBAND;
    erf.flags = ERF_FLAG_VARYING_LENGTH;
    erf.rlen = htons(sizeof erf + n);
    erf.wlen = htons(n);

    record.sec = now.tv_sec;
    record.usec = now.tv_usec;
    record.caplen = record.len = sizeof erf + n;

    struct iovec iov[] = {
        { &record, sizeof record },
        { &erf, sizeof erf },
        { CONST_CAST(void *, packet), n },
    };
    written = writev(pcap->fd, iov, ARRAY_SIZE(iov));
    if (written < 0) {
        return errno;
    }
    return written == sizeof record + sizeof erf + n ? 0 : ENOSPC;
}

const char *
fabric_pcap_name(const struct fabric_pcap *pcap)
{
    return pcap->name;
}
