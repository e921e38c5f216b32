//! Compiles the parser of shared memory handles, which is C++.

fn main() {
    for input in ["ipc_text.cpp", "../cpp/torch_npu/allocator/ipc_text.h"] {
        println!("cargo::rerun-if-changed={input}");
    }
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .flag("-D_GLIBCXX_ASSERTIONS")
        .include("../cpp/torch_npu/allocator")
        .file("ipc_text.cpp")
        .compile("npualloc_ipc_text");
}
