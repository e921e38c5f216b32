//! Sets `cfg(loom)` for the core, and for this package alone.

fn main() {
    println!("cargo:rustc-cfg=loom");
    println!("cargo:rerun-if-changed=build.rs");
}
