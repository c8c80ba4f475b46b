// libnvm waits on memory that it calls volatile, which the thread sanitizer does not take for an agreement between threads:
// races that have libnvm on either side are not told. What goes through our own queues has none.
extern "C" const char* __tsan_default_suppressions() { return "race:nvm_\n"; }
