//! Symbols of C++, Rust and Swift: each kind of them that is written in a way of its own.

/// Inputs as the fuzz target takes them.
pub const INPUTS: &[&str] = &[
    "_ZN5store3putERKSsi",
    "_ZN4core3fmt5write17h0123456789abcdefE",
    "_RINvMsr_NtCs3ssYzQotkvD_3std4pathNtB5_7PathBuf3newKpEB7_",
    "_ZN1nawENS_1DE",
    "_ZN5unitsli2_sEPKcm",
    "_ZTch0_v0_n24_N1D1cEv",
    "_Z1gIJEEvDpOT_DpSaIS0_Ei",
    "_Z1gIJicEEvDpOT_N1n1AEPS4_",
    "_Z1gIJPFviEA3_iRA3_iEEvDpOT_",
    "_ZZN1AC1IiEET_iENKUlvE_clEv",
    "_Z1fIN1n1AEEvPNT_1BEPKNS2_1CE",
    "_ZNSt6vectorIiSaIiEE9push_backEOi.part.0",
    "_Z1fILi3ELb1EEvDTcl1gfp_EET_",
    "$s4main5ShelfC3put4bookSiSS_tF",
    "$s4main3foo_1bySi_SitF",
    "$s4main4testyyF5innerL_yyF",
    "$s4main5StackV4pushyyxFSi_Tg5",
    "$s4main1fyyxAA1PRzlF",
    "$s4main3fooyyFyycfU_",
];
