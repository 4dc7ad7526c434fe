//! The published figures of the reproduction of Bento, which a report shows next to its own figures.
//!
//! Source: the reproduction's Table 3 (MB/s; operations a second for files) and Table 4 (ratios to ext4 `data=journal`,
//! and those of the paper: S. Miller et al., "High velocity kernel file systems with Bento", FAST 2021, which has 40
//! threads where the reproduction has 18). The clock of the reproduction counts whole seconds, so a ratio of 1.00 often
//! means only the same second.

/// A row of both tables.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Published {
    /// The name of the workload in the catalogue.
    pub workload: &'static str,
    /// ext4, `data=ordered`.
    pub ordered: f64,
    /// ext4, `data=journal`.
    pub journal: f64,
    /// Bento-fs in the kernel.
    pub bento: f64,
    /// Bento-fs over FUSE.
    pub bento_user: f64,
    /// The ratio of Bento-fs in the kernel to ext4 `data=journal`: in the reproduction, and in the paper.
    pub ratios: [f64; 2],
    /// The ratio of Bento-fs over FUSE to ext4 `data=journal`: in the reproduction, and in the paper.
    pub user_ratios: [f64; 2],
}

const fn row(workload: &'static str, table3: [f64; 4], table4: [f64; 4]) -> Published {
    let [ordered, journal, bento, bento_user] = table3;
    let [ratio, paper, user, paper_user] = table4;
    let (ratios, user_ratios) = ([ratio, paper], [user, paper_user]);
    Published { workload, ordered, journal, bento, bento_user, ratios, user_ratios }
}

/// All rows.
#[allow(clippy::approx_constant, reason = "a ratio that happens to be near pi")]
pub const PUBLISHED: &[Published] = &[
    row("seq_read_4k,T=1", [2713.05, 2733.16, 2950.72, 3493.6], [1.08, 1.01, 1.28, 1.01]),
    row("seq_read_32k,T=1", [4381.29, 4093.39, 5369.05, 4694.15], [1.31, 1.01, 1.15, 1.00]),
    row("seq_read_128k,T=1", [4211.15, 4449.2, 4959.29, 5077.1], [1.11, 1.01, 1.14, 1.01]),
    row("seq_read_1024k,T=1", [4396.46, 4835.22, 4640.31, 4701.92], [0.96, 1.02, 0.97, 0.99]),
    row("seq_read_4k,T=N", [5379.48, 5363.47, 5265.28, 5056.07], [0.98, 1.00, 0.94, 0.99]),
    row("seq_read_32k,T=N", [12027.73, 12191.27, 8728.25, 10319.12], [0.72, 0.98, 0.85, 0.96]),
    row("seq_read_128k,T=N", [11978.23, 12423.48, 10431.09, 10151.42], [0.84, 0.99, 0.82, 1.00]),
    row("seq_read_1024k,T=N", [11760.28, 12230.17, 10112.82, 10010.98], [0.83, 1.00, 0.82, 1.00]),
    row("rand_read_4k,T=1", [1911.1, 1364.98, 1365.09, 1774.52], [1.00, 1.01, 1.30, 1.00]),
    row("rand_read_32k,T=1", [3071.33, 2661.83, 2661.88, 3071.3], [1.00, 1.00, 1.15, 0.99]),
    row("rand_read_128k,T=1", [3480.9, 4095.16, 4095.06, 3685.63], [1.00, 1.00, 0.90, 0.98]),
    row("rand_read_1024k,T=1", [4096.04, 3891.28, 4096.01, 4096.04], [1.05, 1.00, 1.05, 0.99]),
    row("rand_read_4k,T=N", [2047.7, 2047.7, 2047.68, 2047.67], [1.00, 1.02, 1.00, 1.02]),
    row("rand_read_32k,T=N", [4095.47, 4095.42, 4095.45, 4095.04], [1.00, 1.01, 1.00, 1.02]),
    row("rand_read_128k,T=N", [4097.23, 4096.7, 4097.13, 4097.11], [1.00, 1.00, 1.00, 1.00]),
    row("rand_read_1024k,T=N", [4112.94, 4112.85, 4112.83, 4112.86], [1.00, 1.00, 1.00, 1.00]),
    row("seq_write_4k,T=1", [999.8, 439.95, 1333.1, 5.89], [3.03, 1.46, 0.01, 0.02]),
    row("seq_write_32k,T=1", [1266.45, 483.25, 1666.3, 6.26], [3.45, 2.45, 0.01, 0.01]),
    row("seq_write_128k,T=1", [1299.73, 499.9, 1333.1, 6.29], [2.67, 4.12, 0.01, 0.01]),
    row("seq_write_1024k,T=1", [1333.08, 488.8, 1999.6, 6.31], [4.09, 3.93, 0.01, 0.01]),
    row("rand_write_4k,T=1", [1023.8, 436.8, 1228.55, 13.76], [2.81, 1.16, 0.03, 0.07]),
    row("rand_write_32k,T=1", [2084.07, 625.65, 2363.75, 13.76], [3.78, 2.27, 0.02, 0.03]),
    row("rand_write_128k,T=1", [2360.56, 670.68, 2729.28, 13.93], [4.07, 6.55, 0.02, 0.03]),
    row("rand_write_1024k,T=1", [2048.11, 604.7, 2048.05, 14.83], [3.39, 12.24, 0.02, 0.03]),
    row("rand_write_4k,T=N", [791.8, 339.14, 941.94, 14.0], [2.78, 1.15, 0.04, 0.04]),
    row("rand_write_32k,T=N", [1602.25, 576.46, 1973.01, 13.62], [3.42, 4.20, 0.02, 0.03]),
    row("rand_write_128k,T=N", [2080.7, 628.27, 2243.62, 13.74], [3.57, 6.24, 0.02, 0.03]),
    row("rand_write_1024k,T=N", [2056.41, 655.99, 2056.58, 14.57], [3.14, 6.50, 0.02, 0.04]),
    row("createfiles,T=1", [132475.92, 99089.28, 124981.02, 2544.25], [1.26, 1.41, 0.03, 0.02]),
    row("createfiles,T=N", [105344.08, 88530.6, 57686.75, 2674.23], [0.65, 1.05, 0.03, 0.01]),
    row("deletefiles,T=1", [27494.13, 27493.96, 27494.4, 1195.51], [1.00, 1.09, 0.04, 0.03]),
    row("deletefiles,T=N", [27510.48, 27510.35, 27508.15, 1250.65], [1.00, 0.91, 0.05, 0.01]),
];
