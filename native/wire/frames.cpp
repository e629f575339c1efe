// One communication round over plain TCP sockets: frames out, frames in, two system calls per peer.
//
// The frame format is specified in ppca/transport/frames.py; this file packs and compares the same three little-endian
// words. It completes only the usual case: every frame is sent with one call, every expected frame arrives complete and
// correct. Any other state (a full buffer, a partial frame, an unexpected header, an error) is returned to the caller;
// ppca/transport continues the round.

#include <nanobind/nanobind.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>

namespace ppca {
namespace {

namespace nb = nanobind;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kHeader = 24;
constexpr std::size_t kPeers = 4;  // seats; the own one is not used
constexpr std::size_t kParts =
    48;  // messages in each direction that fit on the stack; a round with more uses the slow path

// Time for which a waiting server polls for its frames, yielding to other processes, before it sleeps. Waking a process
// (on a virtual machine: a processor) takes longer than the answer of a near peer. Polling halves the time of small
// operations; with a distant peer it costs this much processor time per round.
constexpr auto kAlert = std::chrono::microseconds(200);

// If a yield takes longer than this, other processes need the processor, and a sleeping process gets it back sooner
// than a yielding one. The next rounds then sleep at once: 32 of them, twice as many after each further failed attempt.
constexpr auto kCrowded = std::chrono::microseconds(500);
constexpr int kShortRest = 32, kLongRest = 4096;

// Decides whether to poll: the next `rest` rounds do not.
struct Alertness {
    int rest = 0, next = kShortRest;
};

struct Frame {
    int fd = -1;
    uint64_t header[3];
    iovec parts[kParts + 1];
    std::size_t count = 0, size = 0;  // of parts; bytes of payload
    ssize_t moved = 0;                // bytes sent or received, header included, or minus an error number

    bool used() const { return count != 0; }
    bool whole() const { return moved == static_cast<ssize_t>(kHeader + size); }

    void add(void* data, std::size_t bytes) {
        if (!used()) parts[count++] = {header, kHeader};
        if (bytes) parts[count++] = {data, bytes};
        size += bytes;
    }

    // True if the kernel took all of it.
    bool send() {
        msghdr message{};
        message.msg_iov = parts;
        message.msg_iovlen = count;
        moved = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (moved < 0) moved = -errno;
        return whole();
    }

    // Reads more of the frame; true once it is complete.
    bool receive(int flags) {
        iovec rest[kParts + 1];
        std::size_t skip = static_cast<std::size_t>(moved), left = 0;
        for (std::size_t i = 0; i < count; ++i) {
            if (skip >= parts[i].iov_len) {
                skip -= parts[i].iov_len;
                continue;
            }
            rest[left++] = {static_cast<char*>(parts[i].iov_base) + skip, parts[i].iov_len - skip};
            skip = 0;
        }
        msghdr message{};
        message.msg_iov = rest;
        message.msg_iovlen = left;
        const ssize_t got = recvmsg(fd, &message, flags);
        if (got > 0) moved += got;
        return whole();
    }

    nb::bytes received() const {
        const std::size_t read = static_cast<std::size_t>(moved);
        nb::object all = nb::steal(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(read)));
        if (!all.is_valid()) nb::raise_python_error();
        char* to = PyBytes_AS_STRING(all.ptr());
        std::size_t left = read;
        for (std::size_t i = 0; i < count && left; ++i) {
            const std::size_t take = left < parts[i].iov_len ? left : parts[i].iov_len;
            std::memcpy(to, parts[i].iov_base, take);
            to += take;
            left -= take;
        }
        return nb::borrow<nb::bytes>(all);
    }
};

// The frames of one round, and the Python buffers they point into.
struct Round {
    Frame out[kPeers], in[kPeers];
    Py_buffer views[kParts];
    std::size_t viewed = 0;

    ~Round() {
        for (std::size_t i = 0; i < viewed; ++i) PyBuffer_Release(&views[i]);
    }

    bool run(Alertness& alertness) {
        bool whole = true;
        for (Frame& frame : out)
            if (frame.used()) whole = frame.send() && whole;
        return whole &&
               (watch(alertness) || wait());  // unsent bytes must be sent while receiving, which the slow path does
    }

private:
    // Reads frames that arrive within kAlert; true if all have arrived.
    bool watch(Alertness& alertness) {
        if (alertness.rest) {
            --alertness.rest;
            return false;
        }
        const auto start = Clock::now();
        for (auto now = start; now < start + kAlert;) {
            bool all = true;
            for (Frame& frame : in)
                if (frame.used() && !frame.whole()) all = frame.receive(MSG_DONTWAIT) && all;
            if (all) {
                alertness.next = kShortRest;
                return true;
            }
            sched_yield();
            const auto before = now;
            now = Clock::now();
            if (now - before > kCrowded) {
                alertness.rest = alertness.next;
                alertness.next = alertness.next < kLongRest ? 2 * alertness.next : kLongRest;
            }
        }
        return false;
    }

    // Waits for the other frames, on each link up to its SO_RCVTIMEO.
    bool wait() {
        for (Frame& frame : in)
            if (frame.used() && !frame.whole() && !frame.receive(MSG_WAITALL)) return false;
        return true;
    }
};

// The three links of one server, for rounds of small frames.
class Wire {
public:
    Wire(uint64_t word, nb::list links, std::size_t limit) : word_(word), limit_(limit) {
        for (nb::handle item : links) {
            nb::tuple link = nb::cast<nb::tuple>(item);
            Link& entry = at(link[0]);
            entry.fd = nb::cast<int>(link[1]);
            entry.word = nb::cast<uint64_t>(link[2]);
        }
    }

    uint64_t step = 0;

    // From now on `swap` leaves all rounds to the caller.
    void close() { open_ = false; }

    // One round. sends: [(peer, buffer)], expects: [(peer, size)]; messages with the same peer make one frame. Returns
    // the expected messages in that order, as bytearrays. None, and nothing is sent, if the round is not for this path.
    // If the round is incomplete: ({peer: bytes sent or minus an error number}, {peer: bytes read}), headers included.
    nb::object swap(nb::list sends, nb::list expects) {
        const std::size_t n_out = sends.size(), n_in = expects.size();
        if (!open_ || n_out > kParts || n_in > kParts) return nb::none();
        const auto start = Clock::now();
        Round round;
        for (std::size_t i = 0; i < n_in; ++i) {
            PyObject* item = PyList_GET_ITEM(expects.ptr(), i);
            const std::size_t seat = peer_of(item), size = number(item, 1);
            if (size > limit_ || round.in[seat].size + size > limit_) return nb::none();
            round.in[seat].size += size;
        }
        for (std::size_t i = 0; i < n_out; ++i) {
            PyObject* item = PyList_GET_ITEM(sends.ptr(), i);
            Frame& frame = round.out[peer_of(item)];
            Py_buffer& view = round.views[i];
            if (PyObject_GetBuffer(PyTuple_GET_ITEM(item, 1), &view, PyBUF_C_CONTIGUOUS) != 0) nb::raise_python_error();
            ++round.viewed;
            frame.add(view.buf, static_cast<std::size_t>(view.len));
            if (frame.size > limit_) return nb::none();
        }
        for (Frame& frame : round.in) frame.size = 0;
        nb::list answer = nb::steal<nb::list>(PyList_New(static_cast<Py_ssize_t>(n_in)));
        for (std::size_t i = 0; i < n_in; ++i) {
            PyObject* item = PyList_GET_ITEM(expects.ptr(), i);
            const std::size_t size = number(item, 1);
            PyObject* payload = PyByteArray_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size));
            if (!payload) nb::raise_python_error();
            PyList_SET_ITEM(answer.ptr(), i, payload);
            round.in[peer_of(item)].add(PyByteArray_AS_STRING(payload), size);
        }
        for (std::size_t seat = 0; seat < kPeers; ++seat) {
            round.out[seat].fd = round.in[seat].fd = links_[seat].fd;
            Frame& frame = round.out[seat];
            frame.header[0] = word_;
            frame.header[1] = step;
            frame.header[2] = frame.size;
        }
        bool usual;
        {
            nb::gil_scoped_release release;
            usual = round.run(alertness_);
        }
        for (std::size_t seat = 0; seat < kPeers; ++seat) usual = usual && expected(round.in[seat], seat);
        if (!usual) return what_happened(round);
        count(round);
        seconds_ += std::chrono::duration<double>(Clock::now() - start).count();
        ++step;
        return answer;
    }

    // (rounds, messages sent, messages received, seconds, payload bytes sent to each seat, received from each) since
    // the last call.
    nb::tuple take_counts() {
        nb::list sent, received;
        for (Link& link : links_) {
            sent.append(link.sent);
            received.append(link.received);
            link.sent = link.received = 0;
        }
        nb::tuple counts = nb::make_tuple(rounds_, messages_sent_, messages_received_, seconds_, sent, received);
        rounds_ = messages_sent_ = messages_received_ = 0;
        seconds_ = 0;
        return counts;
    }

private:
    struct Link {
        int fd = -1;
        uint64_t word = 0, sent = 0, received = 0;
    };

    static std::size_t number(PyObject* pair, Py_ssize_t index) {
        if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2) throw nb::type_error("messages are pairs");
        const std::size_t value = PyLong_AsSize_t(PyTuple_GET_ITEM(pair, index));
        if (value == static_cast<std::size_t>(-1) && PyErr_Occurred()) nb::raise_python_error();
        return value;
    }

    std::size_t peer_of(PyObject* item) const {
        const std::size_t seat = number(item, 0);
        if (seat >= kPeers || links_[seat].fd < 0) throw nb::index_error("no link to this seat");
        return seat;
    }

    Link& at(nb::handle seat) {
        const auto index = nb::cast<std::size_t>(seat);
        if (index >= kPeers) throw nb::index_error("seats are 0 to 3");
        return links_[index];
    }

    bool expected(const Frame& frame, std::size_t seat) const {
        const uint64_t words[3] = {links_[seat].word, step, frame.size};
        return !frame.used() || (frame.whole() && std::memcmp(frame.header, words, kHeader) == 0);
    }

    void count(const Round& round) {
        ++rounds_;
        for (std::size_t seat = 0; seat < kPeers; ++seat) {
            messages_sent_ += round.out[seat].used();
            messages_received_ += round.in[seat].used();
            links_[seat].sent += round.out[seat].size;
            links_[seat].received += round.in[seat].size;
        }
    }

    static nb::object what_happened(const Round& round) {
        nb::dict sent, read;
        for (std::size_t seat = 0; seat < kPeers; ++seat) {
            if (round.out[seat].used()) sent[nb::int_(seat)] = static_cast<long>(round.out[seat].moved);
            if (round.in[seat].used()) read[nb::int_(seat)] = round.in[seat].received();
        }
        return nb::make_tuple(sent, read);
    }

    Link links_[kPeers];
    uint64_t word_;
    std::size_t limit_;
    uint64_t rounds_ = 0, messages_sent_ = 0, messages_received_ = 0;
    double seconds_ = 0;
    bool open_ = true;
    Alertness alertness_;
};

}  // namespace
}  // namespace ppca

void register_frames(nanobind::module_& m) {
    namespace nb = nanobind;
    using ppca::Wire;
    nb::class_<Wire>(m, "Wire", "The links of one server over plain sockets, for rounds of small frames.")
        .def(nb::init<uint64_t, nb::list, std::size_t>(),
             nb::sig("def __init__(self, word: int, links: list[tuple[int, int, int]], limit: int, /) -> None"),
             "word: first word of the own headers; links: (peer, descriptor, first word of its headers); "
             "limit: largest payload.")
        .def_rw("step", &Wire::step, "The number of the next round.")
        .def("close", &Wire::close)
        .def("swap", &Wire::swap,
             nb::sig("def swap(self, sends: Sequence[tuple[int, Buffer]], expects: Sequence[tuple[int, int]], /) "
                     "-> list[memoryview | bytearray] | tuple[dict[int, int], dict[int, bytes]] | None"),
             "One round: the expected messages; or what was sent and read so far; or None if it must go another way.")
        .def("take_counts", &Wire::take_counts,
             nb::sig("def take_counts(self) -> tuple[int, int, int, float, list[int], list[int]]"),
             "Rounds, messages sent and received, seconds, bytes sent to and received from each seat, "
             "since last asked.");
}
