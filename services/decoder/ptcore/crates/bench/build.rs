//! Builds the C side of the comparison.

fn main() {
    #[cfg(feature = "libipt")]
    {
        println!("cargo:rerun-if-changed=src/libipt.c");
        cc::Build::new().file("src/libipt.c").opt_level(2).warnings(true).compile("pt_bench_libipt");
        println!("cargo:rustc-link-lib=ipt");
    }
}
