// quarry::Client: finds what is cached of a prompt and has the server move the bytes
// straight into, or out of, the caller's own buffers.
//
// THREADS. Every class here is thread-safe unless it says otherwise. A client has one I/O
// thread by default. Callers never wait for the network except in the blocking calls,
// which are the asynchronous ones followed by a wait.
//
// OPERATIONS. An asynchronous call returns at once and reports to a CompletionQueue:
// optionally one kItem completion per item as it ends, then exactly one kDone with the
// whole result. Every operation is done by its deadline. kDone says whether its buffers
// are `released` (nothing of Quarry will touch them again) or `held`: then one kReleased
// completion follows. Until released, buffers and their registration must stay valid.
//
// FORK. A client refuses to work in a forked child: every call returns
// FailedPrecondition there, and destroying it in the child touches nothing but the
// child's own memory. Create a client after the fork.
//
// GPU MEMORY of CUDA is registered, and named by items, as host memory is (device pointers, of any
// GPU; page-locked and managed memory are host memory). All items of an operation lie in host
// memory or in that of one GPU. The bytes go through a ring of page-locked host memory that the
// client keeps (ClientOptions::gpu_staging_bytes): such an operation is carried out as host
// operations on parts of it, as the ring has room, and copies behind or before them.
// - Streams. Without GetOptions::gpu_stream, an item of a get has ended when its copy has run. With
//   it copies are queued on that stream, and an item has ended, and kDone comes, when they are all
//   queued: later work on the stream sees the bytes, and the operation is `held` until the copies
//   have run, as kReleased tells. gpu_event, if given, is recorded behind the last copy before kDone.
//   A put's copies are queued behind what is on its gpu_stream, part by part as the ring has room, and its
//   source may change once it is released. A stream that stands still keeps its share of the ring:
//   an operation of more bytes than the ring has cannot be queued whole until its stream runs on.
// - Contexts are each GPU's primary one, which is made current where needed: callers need none. Streams
//   of other contexts are InvalidArgument, as is CU_STREAM_PER_THREAD; the legacy default stream is
//   CU_STREAM_LEGACY. FailedPrecondition: the stream is being captured, which its copies cannot be;
//   captures of other streams go unharmed. A stream and an event stay valid until the operation is released.
// - Ends. After Cancelled, DeadlineExceeded or Unavailable no further copy is queued; those queued
//   already make it `held`. ~Client waits for them. Internal names a call of CUDA that failed, and
//   its error; one that has ended the GPU's context ends all operations on that GPU.
// - Leases: parts are asked for one after the other, so a lease must last for all of the operation.
// Neither a GPU nor its driver is needed otherwise; libcuda is used only where the process has
// loaded it. Libraries built without CUDA take all memory for host memory.
//
// ERRORS are absl::Status. InvalidArgument names the field and the bound; Unavailable:
// the node cannot be reached now, or the connection broke during the operation. Nothing is
// retried silently and nothing waits for a connection: the client reconnects by itself,
// with jittered exponential backoff, and opens its namespaces again; until then operations
// fail at once. ResourceExhausted: too many operations under way, or a server that does not
// read what it is sent. DeadlineExceeded; Cancelled. A miss or a refusal is not an error:
// it is in the result, with its cause.
#ifndef QUARRY_CLIENT_H_
#define QUARRY_CLIENT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "quarry/block.h"
#include "quarry/completion_queue.h"
#include "quarry/export.h"
#include "quarry/load_advice.h"
#include "quarry/model_spec.h"
#include "quarry/segments.h"

namespace quarry {

struct ClientOptions {
  // The node's transfer address: "host:port", "[v6]:port", or "unix:PATH".
  std::string server = "127.0.0.1:7421";
  std::string client_name;  // for the server's logs; empty: the program's name
  // "auto", "tcp", "shm" or "ucx". With "shm" a node on the same host reads and writes registered
  // memory itself, over its Unix socket; memory that it cannot reach still moves over TCP. With
  // "ucx" payload moves by UCX, which is loaded for it. "auto" is "shm" where that works, else
  // "ucx" where both ends may use it over the network and this host has an RDMA device, else "tcp".
  std::string transport = "auto";
  // Path or name of libucp; empty: libucp.so.0. One that the process has mapped already is used.
  std::string ucx_library;
  // UCX may use any network, not only the loopback device and shared memory. It neither encrypts
  // nor authenticates what travels there.
  bool ucx_trusted_fabric = false;
  // "never", "auto" (where both ends have RDMA adapters) or "always": the node's adapter reaches
  // registered memory by itself (RMA), and what it is at when an operation ends is `held` meanwhile.
  std::string ucx_rma = "auto";
  uint32_t data_streams = 1;              // 1 to 16
  uint32_t io_threads = 1;                // 1 to 16; data streams are spread over them
  uint32_t connect_timeout_ms = 5'000;    // of Create, and of each later attempt
  uint32_t default_deadline_ms = 30'000;  // of an operation that sets none
  uint32_t backoff_min_ms = 20;
  uint32_t backoff_max_ms = 2'000;
  bool verify_checksums = true;  // on get; and computed on put (else the server does)
  // Page-locked host memory through which GPU memory is read and written; allocated when such is first
  // registered. 1 MiB to 64 GiB. The largest item of GPU memory.
  uint64_t gpu_staging_bytes = 64 << 20;
  // Receives what an operator may want to know, one line without its end each: once a client,
  // which transport "auto" picked for the node and why; and, the first time, why registered memory
  // moves over TCP all the same. Called within Create or RegisterMemory, or later on a thread of
  // the client, one call at a time; must neither throw nor call the client. Empty: nobody is told.
  std::function<void(absl::string_view)> log;
};

// How many operations and bytes are on their way, for tests and diagnostics. Operations on GPU memory
// count besides the host operations that carry them.
struct ClientCounters {
  uint64_t operations = 0;  // begun and not done
  uint64_t held = 0;        // done and not released
  uint64_t exposed_requests = 0;
  uint64_t reconnects = 0;
  uint64_t checksum_failures = 0;
};

// What one request of an engine asks of the cache, for all its operations alike: each heeds
// what concerns it.
struct RequestControl {
  // Matches, gets and fetches: everything is a miss, with cause kOptedOut. Puts: everything is
  // refused, with reason kOptedOut. The node is not asked and counts nothing, the call ends at
  // once, also without a connection, and nothing but namespace and queue is looked at.
  bool no_load = false;
  bool no_store = false;
  uint32_t retain_ms = 0;  // puts: keep at least so long, within the node's bounds on leases
  uint32_t priority = 0;   // gets, puts, fetches: 0 to 7; what is larger moves first
  bool no_ssd = false;     // puts: never write it to an SSD
};

using OperationId = uint64_t;  // never 0, never reused by a client

class ClientImpl;

// Memory in which items' segments may lie. Unregisters when destroyed, which must not be
// before the operations that use it have been released. Movable.
class QUARRY_EXPORT MemoryRegion {
 public:
  MemoryRegion() = default;
  MemoryRegion(MemoryRegion&&) noexcept;
  MemoryRegion& operator=(MemoryRegion&&) noexcept;
  ~MemoryRegion();
  std::byte* base() const { return range_.base; }
  size_t bytes() const { return range_.bytes; }

 private:
  friend class ClientImpl;
  std::shared_ptr<ClientImpl> client_;
  MemoryRange range_;
};

// Memory that a node on the same host maps, which is its quickest way to it: a sealed memfd, in
// place, registered. Goes when destroyed, under the same condition as a MemoryRegion. Movable.
class QUARRY_EXPORT SharedMemory {
 public:
  SharedMemory();
  SharedMemory(SharedMemory&&) noexcept;
  SharedMemory& operator=(SharedMemory&&) noexcept;
  ~SharedMemory();
  std::byte* base() const { return region_.base(); }
  size_t bytes() const { return region_.bytes(); }

 private:
  friend class ClientImpl;
  struct Mapping;
  std::unique_ptr<Mapping> mapping_;
  MemoryRegion region_;  // goes first
};

struct NamespaceOptions {
  // When the name is taken by another spec: open a sibling instead of failing.
  bool sibling_on_mismatch = false;
  // When this call creates the namespace: blocks are found for at most so long after they were
  // stored. 0: without a limit; else 1 s to 10 years.
  uint64_t ttl_ms = 0;
  double prefill_tokens_per_second = 0;  // see Namespace::TellPrefillRate
};

// An open namespace. Copyable, cheap; survives reconnects.
class QUARRY_EXPORT Namespace {
 public:
  Namespace();
  ~Namespace();
  Namespace(const Namespace&);
  Namespace& operator=(const Namespace&);

  const std::string& name() const;  // the sibling's, when one was opened
  const std::string& id() const;    // 32 bytes
  const ModelSpec& spec() const;
  // Not empty: another spec holds the name, and this is a sibling; the fields that differ.
  const std::vector<std::string>& differing_fields() const;
  uint64_t ttl_ms() const;  // in force when it was opened

  // How fast the engine computes this model's KV, as it measured: for MatchResult::advice from
  // now on, in all copies. 0: not known. InvalidArgument when it is negative or no number.
  absl::Status TellPrefillRate(double tokens_per_second) const;

  struct State;

 private:
  friend struct NamespaceAccess;
  std::shared_ptr<const State> state_;
};

// A pin on matched blocks. Copyable: a token, not an owner. It ends by itself; Release
// ends it early. Any process of the tenant may use it: Serialize here, Attach there.
class QUARRY_EXPORT Lease {
 public:
  Lease() = default;
  explicit operator bool() const { return !token_.empty(); }
  uint32_t granted_ms() const { return granted_ms_; }
  // 1 byte version, 4 bytes LE granted_ms, 16 bytes token.
  std::string Serialize() const;
  // InvalidArgument when the bytes are no lease; whether it still holds shows when used.
  static absl::StatusOr<Lease> Attach(absl::string_view serialized);

 private:
  friend struct LeaseAccess;
  std::string token_;
  uint32_t granted_ms_ = 0;
};

// One group's chain, from where the caller's local hit ends.
struct Chain {
  uint32_t group = 0;
  uint64_t first_block = 0;  // index in the chain of the first hash
  HashSpan hashes;           // as long as the spec's hash_bytes; read during the call only
};

struct MatchOptions {
  uint64_t local_tokens = 0;  // what the caller already has
  uint32_t lease_ms = 5'000;  // 0: none
  bool no_touch = false;
  // Shards that a get will follow for: the node begins to bring them from its SSD into memory, of
  // the first 32 MiB of usable blocks and if not too much is on its way already. Below
  // GroupSpec::shards of every chain's group.
  std::vector<uint32_t> prefetch_shards;
  uint32_t deadline_ms = 0;  // 0: the client's default
  // How many shards of each block the caller would load: for MatchResult::advice. 0: all.
  uint32_t advice_shards = 0;
  RequestControl control;
};

struct MatchResult {
  uint64_t usable_tokens = 0;  // local_tokens when nothing more is usable
  struct Chain {
    std::vector<BlockState> states;  // one a hash
    uint64_t first_usable = 0;       // blocks to load: indices in the chain
    uint64_t end_usable = 0;
  };
  std::vector<Chain> chains;                // as in the call
  MissCause first_miss = MissCause::kNone;  // what stopped the match
  uint32_t first_miss_chain = 0;
  uint64_t first_miss_block = 0;
  Lease lease;
  // What is usable is what is leased, where a lease was asked for: not kNone tells that more
  // is there, and which of the node's bounds on leases left it out.
  LeaseLimit lease_limit = LeaseLimit::kNone;
  // What is worth loading, by the time that this client's gets and fetches have taken and the
  // prefill rate that was told. Payloads are taken to be of the spec's shard_bytes. Not of
  // fetches.
  LoadAdvice advice;
};

// One shard of one block, and where its bytes go to or come from.
struct Item {
  uint32_t group = 0;
  uint32_t shard = 0;
  absl::string_view hash;  // read during the call only
  SegmentList segments;
  // Get only: the byte range of the shard that `segments` receive (a range of layers, in a
  // layout where they follow each other). bytes = 0: from offset to the end, which is where
  // `segments` end in a group whose shard_bytes is a maximum.
  uint64_t offset = 0;
  uint64_t bytes = 0;
  // Put only.
  uint64_t depth = 0;        // index in the chain
  absl::string_view parent;  // hash of the block before; empty: none or not known
};

struct GetOptions {
  Lease lease;
  uint32_t deadline_ms = 0;
  RequestControl control;
  bool wait_in_flight = false;  // wait for puts under way instead of a kInFlight miss
  bool item_completions = false;
  uint64_t window_bytes = 0;  // at most so much of this get on its way; 0: no bound
  // For items in GPU memory, else not looked at; see GPU MEMORY. A CUstream on which the copies are
  // queued (nullptr: one of the client's own), and a CUevent that is recorded behind them.
  void* gpu_stream = nullptr;
  void* gpu_event = nullptr;
};

struct ItemResult {
  // OK: the bytes are in place (get), or the outcome below holds (put). A miss or refusal
  // is OK too. DataLoss: arrived with a wrong checksum. FailedPrecondition: not of the size
  // of its destination. Aborted: the server gave it up (a range beyond what is stored; overload). OutOfRange: a fetch
  // left it out for max_blocks or min_blocks. Others are how the operation as a whole ended before the item had.
  absl::Status status;
  MissCause miss = MissCause::kNone;             // get: kNone = the bytes are in place
  PutOutcome outcome = PutOutcome::kUnknown;     // put
  RefusalReason refusal = RefusalReason::kNone;  // put, with kRefused
};

struct TransferResult {
  std::vector<ItemResult> items;  // as in the call
  uint64_t bytes = 0;             // moved
};

struct PutOptions {
  uint32_t deadline_ms = 0;
  RequestControl control;
  bool wait_in_flight = false;
  bool item_completions = false;
  void* gpu_stream = nullptr;  // as of GetOptions: the source is read behind what is queued there
};

struct FetchOptions {
  MatchOptions match;       // and the control of the whole
  uint32_t shard = 0;       // which shard of every block; FetchPrefix moves one a call
  uint64_t max_blocks = 0;  // 0: as many as there are destinations
  uint64_t min_blocks = 0;  // fewer usable: nothing moves, and nothing is usable
  bool item_completions = false;
  void* gpu_stream = nullptr;  // as of GetOptions; fetches into GPU memory take two round trips
  void* gpu_event = nullptr;
};

struct FetchResult {
  // What is usable is what was moved: after max_blocks and min_blocks. The states say what is
  // there beyond.
  MatchResult match;
  uint64_t fetched_blocks = 0;
  // One item a destination, counted through all chains. Those not moved have miss != kNone
  // or status OutOfRange, and untouched buffers.
  TransferResult transfer;
};

class QUARRY_EXPORT Client {
 public:
  // Connects; Unavailable or DeadlineExceeded when that fails within connect_timeout_ms,
  // FailedPrecondition when the server speaks another major version.
  static absl::StatusOr<std::unique_ptr<Client>> Create(const ClientOptions& options);
  // Ends what is under way (Cancelled); all is done and released when it returns.
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Blocking. FailedPrecondition names the differing fields when the name is taken by
  // another spec and no sibling is wanted.
  absl::StatusOr<Namespace> OpenNamespace(absl::string_view name, const ModelSpec& spec,
                                          const NamespaceOptions& options = {});
  // Host or GPU memory. Ranges must not overlap those registered already. At most 4096. With shared memory this waits
  // for the node's answer; pages of files in memory are all put in place. Memory must be
  // registered again when what is mapped there changes.
  absl::StatusOr<MemoryRegion> RegisterMemory(void* base, size_t bytes);
  // New memory, registered, all of it in place, in huge pages where the system allows these to
  // files in memory. ResourceExhausted: it would take more than three quarters of the memory that
  // the machine has left.
  absl::StatusOr<SharedMemory> AllocateShared(size_t bytes);

  // Asynchronous. `user_data` comes back in the completions. An error return means that
  // nothing was begun and no completion follows. Results: CompletionQueue::Next.
  absl::StatusOr<OperationId> MatchAsync(const Namespace& ns, absl::Span<const Chain> chains,
                                         const MatchOptions& options, CompletionQueue* queue, uint64_t user_data);
  absl::StatusOr<OperationId> GetAsync(const Namespace& ns, std::vector<Item> items, const GetOptions& options,
                                       CompletionQueue* queue, uint64_t user_data);
  absl::StatusOr<OperationId> PutAsync(const Namespace& ns, std::vector<Item> items, const PutOptions& options,
                                       CompletionQueue* queue, uint64_t user_data);
  // destinations[c][k] receives the k-th hash of chains[c]; as many as hashes, or fewer
  // for fewer blocks (at least 1 a chain): hashes without a destination are not asked
  // about. Each holds a whole shard.
  absl::StatusOr<OperationId> FetchPrefixAsync(const Namespace& ns, absl::Span<const Chain> chains,
                                               std::vector<std::vector<SegmentList>> destinations,
                                               const FetchOptions& options, CompletionQueue* queue, uint64_t user_data);
  // Asks for an early end; the operation's kDone still comes, with Cancelled unless it was
  // done already.
  void Cancel(OperationId operation);

  // Blocking: the same and a wait. They return when the buffers are released. Match stays
  // awake for up to 300 us of its wait where replies usually come sooner.
  absl::StatusOr<MatchResult> Match(const Namespace& ns, absl::Span<const Chain> chains,
                                    const MatchOptions& options = {});
  absl::StatusOr<TransferResult> Get(const Namespace& ns, std::vector<Item> items, const GetOptions& options = {});
  absl::StatusOr<TransferResult> Put(const Namespace& ns, std::vector<Item> items, const PutOptions& options = {});
  absl::StatusOr<FetchResult> FetchPrefix(const Namespace& ns, absl::Span<const Chain> chains,
                                          std::vector<std::vector<SegmentList>> destinations,
                                          const FetchOptions& options = {});

  // Returns the granted time. NotFound: the lease is not known or has ended.
  absl::StatusOr<uint32_t> RenewLease(Lease* lease, uint32_t lease_ms);
  absl::Status ReleaseLease(const Lease& lease);
  absl::Status Touch(const Namespace& ns, absl::Span<const Chain> chains);

  ClientCounters counters() const;

 private:
  explicit Client(std::shared_ptr<ClientImpl> impl);
  std::shared_ptr<ClientImpl> impl_;
};

}  // namespace quarry

#endif  // QUARRY_CLIENT_H_
