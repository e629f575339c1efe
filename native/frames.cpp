// One communication round over plain TCP sockets: frames out, frames in, two system calls per peer and none of Python's overhead.
//
// The frame format is specified in ppca/transport/frames.py; this file packs and compares the same three little-endian words.
// Only the usual case ends here: every frame goes out at one go, every expected frame comes in whole and as expected. Anything
// else (a full buffer, a partial frame, a surprise, an error) is handed back as it is, and the transport deals with it.

#include <nanobind/nanobind.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <vector>

#include "registers.hpp"

namespace ppca {
namespace {

namespace nb = nanobind;

constexpr std::size_t kHeader = 24;
constexpr std::size_t kParts = 64;  // buffers of one frame that fit the stack; more are left to the slow path

struct Outgoing {
    int fd;
    uint64_t header[3];
    std::vector<Py_buffer> views;
    iovec parts[kParts];
    std::size_t count = 1, size = 0;
    ssize_t sent = 0;
};

struct Incoming {
    int fd;
    uint64_t expected[3], header[3];
    nb::object payload;
    ssize_t got = 0;
    bool whole = false;
};

class Round {
public:
    ~Round() {
        for (Outgoing &frame : out)
            for (Py_buffer &view : frame.views) PyBuffer_Release(&view);
    }
    std::vector<Outgoing> out;
    std::vector<Incoming> in;
};

void take_buffers(Outgoing &frame, nb::handle buffers) {
    for (nb::handle buffer : buffers) {
        if (frame.count == kParts) throw nb::value_error("too many buffers in one frame");
        Py_buffer view;
        if (PyObject_GetBuffer(buffer.ptr(), &view, PyBUF_C_CONTIGUOUS) != 0) nb::raise_python_error();
        frame.views.push_back(view);
        if (view.len == 0) continue;
        frame.parts[frame.count++] = {view.buf, static_cast<std::size_t>(view.len)};
        frame.size += static_cast<std::size_t>(view.len);
    }
}

void run(Round &round) {
    bool usual = true;
    for (Outgoing &frame : round.out) {
        msghdr message{};
        message.msg_iov = frame.parts;
        message.msg_iovlen = frame.count;
        frame.sent = sendmsg(frame.fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (frame.sent < 0) frame.sent = -errno;
        usual = usual && frame.sent == static_cast<ssize_t>(kHeader + frame.size);
    }
    for (Incoming &frame : round.in) {
        if (!usual) return;  // what could not be sent must go out while receiving: not here
        const std::size_t size = static_cast<std::size_t>(PyByteArray_GET_SIZE(frame.payload.ptr()));
        iovec parts[2] = {{frame.header, kHeader}, {PyByteArray_AS_STRING(frame.payload.ptr()), size}};
        msghdr message{};
        message.msg_iov = parts;
        message.msg_iovlen = size ? 2 : 1;
        frame.got = recvmsg(frame.fd, &message, MSG_WAITALL);  // the socket's SO_RCVTIMEO bounds the wait
        if (frame.got < 0) frame.got = -errno;
        frame.whole = frame.got == static_cast<ssize_t>(kHeader + size) &&
                      std::memcmp(frame.header, frame.expected, kHeader) == 0;
        usual = usual && frame.whole;
    }
}

// sends: (fd, buffers) per frame; receives: (fd, first header word, payload size) per frame.
// Returns (payload sizes sent, payloads as bytearrays) if all went as usual, else (sizes, sent counts, [(got count, bytes read) per
// frame]), where a count below zero is minus an error number. None, and nothing is sent, if a frame exceeds `limit`.
nb::object swap_frames(uint64_t word, uint64_t step, nb::list sends, nb::list receives, std::size_t limit) {
    Round round;
    round.out.resize(sends.size());
    round.in.resize(receives.size());
    for (std::size_t i = 0; i < round.out.size(); ++i) {
        nb::tuple item = nb::borrow<nb::tuple>(sends[i]);
        Outgoing &frame = round.out[i];
        frame.fd = nb::cast<int>(item[0]);
        take_buffers(frame, item[1]);
        if (frame.size > limit) return nb::none();
        frame.header[0] = word;
        frame.header[1] = step;
        frame.header[2] = frame.size;
        frame.parts[0] = {frame.header, kHeader};
    }
    for (std::size_t i = 0; i < round.in.size(); ++i) {
        nb::tuple item = nb::borrow<nb::tuple>(receives[i]);
        Incoming &frame = round.in[i];
        frame.fd = nb::cast<int>(item[0]);
        frame.expected[0] = nb::cast<uint64_t>(item[1]);
        frame.expected[1] = step;
        frame.expected[2] = nb::cast<uint64_t>(item[2]);
        frame.payload = nb::steal(PyByteArray_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(frame.expected[2])));
        if (!frame.payload.is_valid()) nb::raise_python_error();
    }
    {
        nb::gil_scoped_release release;
        run(round);
    }
    bool usual = true;
    for (const Outgoing &frame : round.out) usual = usual && frame.sent == static_cast<ssize_t>(kHeader + frame.size);
    for (const Incoming &frame : round.in) usual = usual && frame.whole;
    nb::list sizes;
    for (const Outgoing &frame : round.out) sizes.append(frame.size);
    if (usual) {
        nb::list payloads;
        for (Incoming &frame : round.in) payloads.append(std::move(frame.payload));
        return nb::make_tuple(sizes, payloads);
    }
    nb::list sent, got;
    for (const Outgoing &frame : round.out) sent.append(static_cast<long>(frame.sent));
    for (Incoming &frame : round.in) {
        const std::size_t read = frame.got > 0 ? static_cast<std::size_t>(frame.got) : 0;
        nb::bytes head(reinterpret_cast<const char *>(frame.header), read < kHeader ? read : kHeader);
        nb::bytes rest(PyByteArray_AS_STRING(frame.payload.ptr()), read > kHeader ? read - kHeader : 0);
        got.append(nb::make_tuple(static_cast<long>(frame.got), head + rest));
    }
    return nb::make_tuple(sizes, sent, got);
}

}  // namespace
}  // namespace ppca

void register_frames(nanobind::module_ &m) {
    m.def("swap_frames", &ppca::swap_frames,
          nanobind::sig("def swap_frames(word: int, step: int, sends: list, receives: list, limit: int, /) -> tuple | None"),
          "One round over plain sockets: the payloads, or, when something was unusual, what was sent and read so far.");
}
