#include "tools/bench/limit/ucx_limit.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#include <vector>

#include "tools/bench/limit/sockets.h"

namespace limit {
namespace {

constexpr unsigned kBlock = 1;  // the data is a block
constexpr unsigned kAsk = 2;    // put: send one
constexpr size_t kEagerBytes = 128 << 10;

#define LIMIT_UCX_FUNCTIONS(F) \
  F(ucp_am_recv_data_nbx)      \
  F(ucp_am_send_nbx)           \
  F(ucp_config_modify)         \
  F(ucp_config_read)           \
  F(ucp_ep_create)             \
  F(ucp_get_version)           \
  F(ucp_get_version_string)    \
  F(ucp_init_version)          \
  F(ucp_request_free) F(ucp_worker_create) F(ucp_worker_progress) F(ucp_worker_query) F(ucp_worker_set_am_recv_handler)

struct Ucx {
#define LIMIT_UCX_MEMBER(name) decltype(&::name) name;
  LIMIT_UCX_FUNCTIONS(LIMIT_UCX_MEMBER)
  explicit Ucx(const std::string& library) {
    void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) Die(dlerror());
#define LIMIT_UCX_FIND(name)                                     \
  name = reinterpret_cast<decltype(name)>(dlsym(handle, #name)); \
  if (name == nullptr) Die("UCX has no " #name);
    LIMIT_UCX_FUNCTIONS(LIMIT_UCX_FIND)
  }
};

void Must(ucs_status_t status, const char* what) {
  if (status != UCS_OK) Die(what);
}

// What makes UCX fastest here; the environment wins.
void Tune(const Ucx& ucx, ucp_config_t* config) {
  unsigned major;
  unsigned minor;
  unsigned release;
  ucx.ucp_get_version(&major, &minor, &release);
  const bool old = minor < 14;
  const auto set = [&](const char* name, const char* old_name, const char* value) {
    if (getenv((std::string("UCX_") + name).c_str()) == nullptr) {
      ucx.ucp_config_modify(config, old ? old_name : name, value);
    }
  };
  set("TCP_TX_SEG_SIZE", "TX_SEG_SIZE", "512K");
  set("TCP_RX_SEG_SIZE", "RX_SEG_SIZE", "512K");
  // UCX warns of settings for what it does not use.
  const char* lanes = getenv("UCX_TLS");
  if (lanes == nullptr || strstr(lanes, "posix") != nullptr) set("POSIX_ERROR_HANDLING", "MM_ERROR_HANDLING", "y");
  set("TLS", "TLS", "posix,self,tcp");
  set("NET_DEVICES", "NET_DEVICES", "lo");
}

}  // namespace

// A worker and its endpoint.
class UcxLimit::End {
 public:
  End(const UcxOptions& end_options, size_t arena_bytes)
      : options(end_options), ucx(options.libucp), arena(MapArena(arena_bytes)), random(getpid()) {
    ucp_config_t* config;
    Must(ucx.ucp_config_read(nullptr, nullptr, &config), "ucp_config_read");
    Tune(ucx, config);
    ucp_params_t params = {};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_AM;
    ucp_context_h context;
    Must(ucx.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context), "ucp_init");
    ucp_worker_params_t worker_params = {};
    worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    worker_params.thread_mode = UCS_THREAD_MODE_SINGLE;
    Must(ucx.ucp_worker_create(context, &worker_params, &worker), "ucp_worker_create");
  }

  // By the socket: each tells the other its address.
  void Connect(int socket) {
    ucp_worker_attr_t attributes = {};
    attributes.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS;
    Must(ucx.ucp_worker_query(worker, &attributes), "ucp_worker_query");
    const size_t mine = attributes.address_length;
    size_t bytes;
    if (!SendAll(socket, &mine, sizeof mine) || !SendAll(socket, attributes.address, mine) ||
        !ReceiveAll(socket, &bytes, sizeof bytes)) {
      Die("the other process has gone");
    }
    std::vector<char> address(bytes);
    if (!ReceiveAll(socket, address.data(), bytes)) Die("the other process has gone");
    ucp_ep_params_t params = {};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    params.address = reinterpret_cast<ucp_address_t*>(address.data());
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    Must(ucx.ucp_ep_create(worker, &params, &endpoint), "ucp_ep_create");
  }

  template <typename Self, ucs_status_t (*Handle)(Self*, void*, size_t, bool)>
  void SetHandler(unsigned id, Self* self) {
    ucp_am_handler_param_t param = {};
    param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    param.id = id;
    param.arg = self;
    param.cb = [](void* arg, const void*, size_t, void* data, size_t bytes, const ucp_am_recv_param_t* how) {
      return Handle(static_cast<Self*>(arg), data, bytes, (how->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0);
    };
    Must(ucx.ucp_worker_set_am_recv_handler(worker, &param), "ucp_worker_set_am_recv_handler");
  }

  // One block. Ends with OnEnd.
  struct Move {
    End* end;
    std::vector<ucp_dt_iov_t> pieces;
  };
  virtual void OnEnd() {}
  void Ended(Move* move) {
    delete move;
    OnEnd();
  }

  // Random places of the arena, or one block of it.
  Move* Somewhere(bool scattered, size_t arena_bytes) {
    auto* move = new Move{this, {}};
    const size_t piece = scattered ? options.segment_bytes : options.block_bytes;
    for (size_t i = 0; i < options.block_bytes / piece; ++i) {
      move->pieces.push_back({arena + random.Below(arena_bytes / piece) * piece, piece});
    }
    return move;
  }

  void Describe(Move* move, ucp_request_param_t* param, void** buffer, size_t* count) {
    param->op_attr_mask |= UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_DATATYPE;
    param->user_data = move;
    const bool one = move->pieces.size() == 1;
    param->datatype = one ? ucp_dt_make_contig(1) : ucp_dt_make_iov();
    *buffer = one ? move->pieces[0].buffer : move->pieces.data();
    *count = one ? move->pieces[0].length : move->pieces.size();
  }

  void Send(Move* move) {
    ucp_request_param_t param = {};
    void* buffer;
    size_t count;
    Describe(move, &param, &buffer, &count);
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = options.block_bytes > kEagerBytes ? UCP_AM_SEND_FLAG_RNDV : UCP_AM_SEND_FLAG_EAGER;
    param.cb.send = [](void* request, ucs_status_t status, void* user) { Finish(request, status, user); };
    Began(ucx.ucp_am_send_nbx(endpoint, kBlock, nullptr, 0, buffer, count, &param), move);
  }

  void ProgressUntilWord(int socket) const {
    for (char word; recv(socket, &word, sizeof word, MSG_DONTWAIT) < 0;) {
      for (int i = 0; i < 1000; ++i) ucx.ucp_worker_progress(worker);
    }
  }

  ucs_status_t Receive(Move* move, void* data, bool rendezvous) {
    if (!rendezvous) {
      const char* from = static_cast<const char*>(data);
      for (const ucp_dt_iov_t& piece : move->pieces) {
        memcpy(piece.buffer, from, piece.length);
        from += piece.length;
      }
      Ended(move);
      return UCS_OK;
    }
    ucp_request_param_t param = {};
    void* buffer;
    size_t count;
    Describe(move, &param, &buffer, &count);
    param.cb.recv_am = [](void* request, ucs_status_t status, size_t, void* user) { Finish(request, status, user); };
    Began(ucx.ucp_am_recv_data_nbx(worker, data, buffer, count, &param), move);
    return UCS_INPROGRESS;
  }

  const UcxOptions options;
  const Ucx ucx;
  ucp_worker_h worker = nullptr;
  ucp_ep_h endpoint = nullptr;
  char* const arena;
  Random random;

 protected:
  ~End() = default;

 private:
  static void Finish(void* request, ucs_status_t status, void* user) {
    Must(status, "a block did not arrive");
    auto* move = static_cast<Move*>(user);
    move->end->ucx.ucp_request_free(request);
    move->end->Ended(move);
  }
  void Began(ucs_status_ptr_t request, Move* move) {
    if (UCS_PTR_IS_ERR(request)) Die("a block could not be moved");
    if (request == nullptr) Ended(move);
  }
};

class UcxLimit::ClientEnd : public End {
 public:
  ClientEnd(const UcxOptions& client_options, int socket) : End(client_options, client_options.client_arena_bytes) {
    SetHandler<ClientEnd, &ClientEnd::OnBlock>(kBlock, this);
    SetHandler<ClientEnd, &ClientEnd::OnAsk>(kAsk, this);
    Connect(socket);
    // Between two runs it must not be in the way of what it is held against.
    for (char word; ReceiveAll(socket, &word, sizeof word);) ProgressUntilWord(socket);
    _exit(0);
  }

 private:
  static ucs_status_t OnBlock(ClientEnd* self, void* data, size_t, bool rendezvous) {
    return self->Receive(self->Somewhere(true, self->options.client_arena_bytes), data, rendezvous);
  }
  static ucs_status_t OnAsk(ClientEnd* self, void*, size_t, bool) {
    self->Send(self->Somewhere(true, self->options.client_arena_bytes));
    return UCS_OK;
  }
};

class UcxLimit::ServerEnd : public End {
 public:
  ServerEnd(const UcxOptions& server_options, int socket) : End(server_options, server_options.server_arena_bytes) {
    SetHandler<ServerEnd, &ServerEnd::OnBlock>(kBlock, this);
    Connect(socket);
    socket_ = socket;
  }

  double Run(double seconds) {
    if (!SendAll(socket_, "g", 1)) Die("the other process has gone");
    const double begin = NowSeconds();
    size_t ended_before = ended_;
    for (double now = begin; now < begin + seconds; now = NowSeconds()) {
      while (under_way_ < options.window) Start();
      for (int i = 0; i < 16; ++i) ucx.ucp_worker_progress(worker);
    }
    while (under_way_ > 0) ucx.ucp_worker_progress(worker);
    const double elapsed = NowSeconds() - begin;
    if (!SendAll(socket_, "s", 1)) Die("the other process has gone");
    return static_cast<double>((ended_ - ended_before) * options.block_bytes) / elapsed / 1e9;
  }

 private:
  static ucs_status_t OnBlock(ServerEnd* self, void* data, size_t, bool rendezvous) {
    return self->Receive(self->Somewhere(false, self->options.server_arena_bytes), data, rendezvous);
  }
  void OnEnd() override {
    --under_way_;
    ++ended_;
  }
  void Start() {
    ++under_way_;
    if (!options.put) return Send(Somewhere(false, options.server_arena_bytes));
    ucp_request_param_t param = {};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK;
    param.cb.send = [](void*, ucs_status_t, void*) {};
    if (UCS_PTR_IS_ERR(ucx.ucp_am_send_nbx(endpoint, kAsk, nullptr, 0, nullptr, 0, &param))) Die("asking for a block");
  }

  int socket_ = -1;
  size_t under_way_ = 0;
  size_t ended_ = 0;
};

UcxLimit::UcxLimit(const UcxOptions& options) {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) Die("socketpair");
  client_pid_ = fork();
  if (client_pid_ < 0) Die("fork");
  if (client_pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    ClientEnd(options, sockets[1]);
  }
  server_ = new ServerEnd(options, sockets[0]);
}

// UCX is left to the end of the process: its ways of closing are not measured here.
UcxLimit::~UcxLimit() {
  kill(client_pid_, SIGKILL);
  waitpid(client_pid_, nullptr, 0);
}

const char* UcxLimit::version() const { return server_->ucx.ucp_get_version_string(); }

double UcxLimit::Run(double seconds) { return server_->Run(seconds); }

}  // namespace limit
