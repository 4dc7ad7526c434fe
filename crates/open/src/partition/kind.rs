//! The types of partitions and their names.
//!
//! Sources: UEFI specification table 5.7; the Discoverable Partitions Specification of the UAPI group, 3; the
//! partition types of fdisk and sgdisk.

use std::fmt;

use super::{Guid, Scheme};

/// The type of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PartitionType {
    /// The GUID in a GPT.
    Gpt(Guid),
    /// The number in an MBR.
    Mbr(u8),
}

impl PartitionType {
    /// Returns the name, if the type is known.
    pub fn name(&self) -> Option<&'static str> {
        match self {
            Self::Gpt(guid) => {
                GUIDS.iter().find(|(known, _)| Guid::from_u128(*known) == *guid).map(|(_, n)| *n)
            }
            Self::Mbr(number) => NUMBERS.iter().find(|(known, _)| known == number).map(|(_, name)| *name),
        }
    }

    /// Parses a type for a table of kind `scheme`: a name of [`PartitionType::known`], a GUID, or an MBR
    /// number in hexadecimal.
    pub fn parse(text: &str, scheme: Scheme) -> Option<Self> {
        let named = IDENTIFIERS.iter().find(|(name, ..)| *name == text);
        match (scheme, named) {
            (Scheme::Gpt, Some((_, guid, _))) => Some(Self::Gpt(Guid::from_u128(*guid))),
            (Scheme::Gpt, None) => Guid::parse(text).map(Self::Gpt),
            (Scheme::Mbr, Some((_, _, number))) => number.map(Self::Mbr),
            (Scheme::Mbr, None) => {
                let digits = text.strip_prefix("0x").unwrap_or(text);
                let number = u8::from_str_radix(digits, 16).ok().filter(|&number| number != 0);
                number.map(Self::Mbr).filter(|kind| !kind.is_container())
            }
        }
    }

    /// Returns the names of types for a table of kind `scheme`.
    pub fn known(scheme: Scheme) -> impl Iterator<Item = &'static str> {
        let names =
            IDENTIFIERS.iter().filter(move |(_, _, number)| scheme == Scheme::Gpt || number.is_some());
        names.map(|(name, ..)| *name)
    }

    /// Returns whether a partition of this type contains data without a file system, such as a boot loader.
    pub fn has_no_files(&self) -> bool {
        const WORDS: [&str; 6] = ["BIOS boot", "FreeBSD boot", "PReP boot", "reserved", "swap", "verity"];
        self.name().is_some_and(|name| WORDS.iter().any(|word| name.contains(word)))
    }

    /// Returns whether a partition of this type only contains other partitions.
    pub fn is_container(&self) -> bool {
        matches!(self, Self::Mbr(0x05 | 0x0f | 0x85))
    }
}

/// Prints the name, or the number or GUID of an unknown type.
impl fmt::Display for PartitionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.name(), self) {
            (Some(name), _) => f.write_str(name),
            (None, Self::Gpt(guid)) => guid.fmt(f),
            (None, Self::Mbr(number)) => write!(f, "type {number:#04x}"),
        }
    }
}

/// Names of types as in systemd-repart(8) and `systemd-id128 show`, with the closest number of an MBR.
#[rustfmt::skip]
const IDENTIFIERS: &[(&str, u128, Option<u8>)] = &[
    ("esp", 0xc12a7328_f81f_11d2_ba4b_00a0c93ec93b, Some(0xef)),
    ("xbootldr", 0xbc13c2ff_59e6_4262_a352_b275fd6f7172, Some(0xea)),
    ("bios-boot", 0x21686148_6449_6e6f_744e_656564454649, None),
    ("linux-generic", 0x0fc63daf_8483_4772_8e79_3d69d8477de4, Some(0x83)),
    ("basic-data", 0xebd0a0a2_b9e5_4433_87c0_68b6b72699c7, Some(0x0c)),
    ("swap", 0x0657fd6d_a4ab_43c4_84e5_0933c84b4f4f, Some(0x82)),
    ("home", 0x933ac7e1_2eb4_4f13_b844_0e14e2aef915, None),
    ("srv", 0x3b8f8425_20e0_4f3b_907f_1a25a76f98e8, None),
    ("var", 0x4d21b016_b534_45c2_a9fb_5c16e091fd2d, None),
    ("tmp", 0x7ec6f557_3bc5_4aca_b293_16ef5df639d1, None),
    ("user-home", 0x773f91ef_66d4_49b5_bd83_d683bf40ad16, None),
    ("raid", 0xa19d880f_05fc_4d3b_a006_743f0f84911e, Some(0xfd)),
    ("lvm", 0xe6d6d379_f507_44c2_a23c_238f2a3df928, Some(0x8e)),
    ("luks", 0xca7d7ccb_63ed_4c53_861c_1742536059cc, None),
    ("root-x86-64", 0x4f68bce3_e8cd_4db1_96e7_fbcaf984b709, None),
    ("root-x86", 0x44479540_f297_41b2_9af7_d131d5f0458a, None),
    ("root-arm64", 0xb921b045_1df0_41c3_af44_4c6f280d3fae, None),
    ("root-arm", 0x69dad710_2ce4_4e3c_b16c_21a1d49abed3, None),
    ("root-riscv64", 0x72ec70a6_cf74_40e6_bd49_4bda08e8f224, None),
    ("root-riscv32", 0x60d5a7fe_8e7d_435c_b714_3dd8162144e1, None),
    ("root-ia64", 0x993d8d3d_f80e_4225_855a_9daf8ed7ea97, None),
    ("root-loongarch64", 0x77055800_792c_4f94_b39a_98c91b762bb6, None),
    ("root-ppc", 0x1de3f1ef_fa98_47b5_8dcd_4a860a654d78, None),
    ("root-ppc64", 0x912ade1d_a839_4913_8964_a10eee08fbd2, None),
    ("root-ppc64-le", 0xc31c45e6_3f39_412e_80fb_4809c4980599, None),
    ("root-s390x", 0x5eead9a9_fe09_4a1e_a1d7_520d00531306, None),
    ("root-x86-64-verity", 0x2c7357ed_ebd2_46d9_aec1_23d437ec2bf5, None),
    ("root-x86-verity", 0xd13c5d3b_b5d1_422a_b29f_9454fdc89d76, None),
    ("root-arm64-verity", 0xdf3300ce_d69f_4c92_978c_9bfb0f38d820, None),
    ("root-arm-verity", 0x7386cdf2_203c_47a9_a498_f2ecce45a2d6, None),
    ("root-riscv64-verity", 0xb6ed5582_440b_4209_b8da_5ff7c419ea3d, None),
    ("root-riscv32-verity", 0xae0253be_1167_4007_ac68_43926c14c5de, None),
    ("root-ia64-verity", 0x86ed10d5_b607_45bb_8957_d350f23d0571, None),
    ("root-loongarch64-verity", 0xf3393b22_e9af_4613_a948_9d3bfbd0c535, None),
    ("root-ppc-verity", 0x98cfe649_1588_46dc_b2f0_add147424925, None),
    ("root-ppc64-verity", 0x9225a9a3_3c19_4d89_b4f6_eeff88f17631, None),
    ("root-ppc64-le-verity", 0x906bd944_4589_4aae_a4e4_dd983917446a, None),
    ("root-s390x-verity", 0xb325bfbe_c7be_4ab8_8357_139e652d2f6b, None),
    ("root-x86-64-verity-sig", 0x41092b05_9fc8_4523_994f_2def0408b176, None),
    ("root-x86-verity-sig", 0x5996fc05_109c_48de_808b_23fa0830b676, None),
    ("root-arm64-verity-sig", 0x6db69de6_29f4_4758_a7a5_962190f00ce3, None),
    ("root-arm-verity-sig", 0x42b0455f_eb11_491d_98d3_56145ba9d037, None),
    ("root-riscv64-verity-sig", 0xefe0f087_ea8d_4469_821a_4c2a96a8386a, None),
    ("root-riscv32-verity-sig", 0x3a112a75_8729_4380_b4cf_764d79934448, None),
    ("root-ia64-verity-sig", 0xe98b36ee_32ba_4882_9b12_0ce14655f46a, None),
    ("root-loongarch64-verity-sig", 0x5afb67eb_ecc8_4f85_ae8e_ac1e7c50e7d0, None),
    ("root-ppc-verity-sig", 0x1b31b5aa_add9_463a_b2ed_bd467fc857e7, None),
    ("root-ppc64-verity-sig", 0xf5e2c20c_45b2_4ffa_bce9_2a60737e1aaf, None),
    ("root-ppc64-le-verity-sig", 0xd4a236e7_e873_4c07_bf1d_bf6cf7f1c3c6, None),
    ("root-s390x-verity-sig", 0xc80187a5_73a3_491a_901a_017c3fa953e9, None),
    ("usr-x86-64", 0x8484680c_9521_48c6_9c11_b0720656f69e, None),
    ("usr-x86", 0x75250d76_8cc6_458e_bd66_bd47cc81a812, None),
    ("usr-arm64", 0xb0e01050_ee5f_4390_949a_9101b17104e9, None),
    ("usr-arm", 0x7d0359a3_02b3_4f0a_865c_654403e70625, None),
    ("usr-riscv64", 0xbeaec34b_8442_439b_a40b_984381ed097d, None),
    ("usr-riscv32", 0xb933fb22_5c3f_4f91_af90_e2bb0fa50702, None),
    ("usr-ia64", 0x4301d2a6_4e3b_4b2a_bb94_9e0b2c4225ea, None),
    ("usr-loongarch64", 0xe611c702_575c_4cbe_9a46_434fa0bf7e3f, None),
    ("usr-ppc", 0x7d14fec5_cc71_415d_9d6c_06bf0b3c3eaf, None),
    ("usr-ppc64", 0x2c9739e2_f068_46b3_9fd0_01c5a9afbcca, None),
    ("usr-ppc64-le", 0x15bb03af_77e7_4d4a_b12b_c0d084f7491c, None),
    ("usr-s390x", 0x8a4f5770_50aa_4ed3_874a_99b710db6fea, None),
    ("usr-x86-64-verity", 0x77ff5f63_e7b6_4633_acf4_1565b864c0e6, None),
    ("usr-x86-verity", 0x8f461b0d_14ee_4e81_9aa9_049b6fb97abd, None),
    ("usr-arm64-verity", 0x6e11a4e7_fbca_4ded_b9e9_e1a512bb664e, None),
    ("usr-arm-verity", 0xc215d751_7bcd_4649_be90_6627490a4c05, None),
    ("usr-riscv64-verity", 0x8f1056be_9b05_47c4_81d6_be53128e5b54, None),
    ("usr-riscv32-verity", 0xcb1ee4e3_8cd0_4136_a0a4_aa61a32e8730, None),
    ("usr-ia64-verity", 0x6a491e03_3be7_4545_8e38_83320e0ea880, None),
    ("usr-loongarch64-verity", 0xf46b2c26_59ae_48f0_9106_c50ed47f673d, None),
    ("usr-ppc-verity", 0xdf765d00_270e_49e5_bc75_f47bb2118b09, None),
    ("usr-ppc64-verity", 0xbdb528a5_a259_475f_a87d_da53fa736a07, None),
    ("usr-ppc64-le-verity", 0xee2b9983_21e8_4153_86d9_b6901a54d1ce, None),
    ("usr-s390x-verity", 0x31741cc4_1a2a_4111_a581_e00b447d2d06, None),
    ("usr-x86-64-verity-sig", 0xe7bb33fb_06cf_4e81_8273_e543b413e2e2, None),
    ("usr-x86-verity-sig", 0x974a71c0_de41_43c3_be5d_5c5ccd1ad2c0, None),
    ("usr-arm64-verity-sig", 0xc23ce4ff_44bd_4b00_b2d4_b41b3419e02a, None),
    ("usr-arm-verity-sig", 0xd7ff812f_37d1_4902_a810_d76ba57b975a, None),
    ("usr-riscv64-verity-sig", 0xd2f9000a_7a18_453f_b5cd_4d32f77a7b32, None),
    ("usr-riscv32-verity-sig", 0xc3836a13_3137_45ba_b583_b16c50fe5eb4, None),
    ("usr-ia64-verity-sig", 0x8de58bc2_2a43_460d_b14e_a76e4a17b47f, None),
    ("usr-loongarch64-verity-sig", 0xb024f315_d330_444c_8461_44bbde524e99, None),
    ("usr-ppc-verity-sig", 0x7007891d_d371_4a80_86a4_5cb875b9302e, None),
    ("usr-ppc64-verity-sig", 0x0b888863_d7f8_4d9e_9766_239fce4d58af, None),
    ("usr-ppc64-le-verity-sig", 0xc8bfbd1e_268e_4521_8bba_bf314c399557, None),
    ("usr-s390x-verity-sig", 0x3f324816_667b_46ae_86ee_9b0c0c6c11b4, None),
];

#[rustfmt::skip]
const GUIDS: &[(u128, &str)] = &[
    (0xc12a7328_f81f_11d2_ba4b_00a0c93ec93b, "EFI system"),
    (0x21686148_6449_6e6f_744e_656564454649, "BIOS boot"),
    (0x024dee41_33e7_11d3_9d69_0008c781f39f, "MBR partition scheme"),
    (0xebd0a0a2_b9e5_4433_87c0_68b6b72699c7, "Microsoft basic data"),
    (0xe3c9e316_0b5c_4db8_817d_f92df00215ae, "Microsoft reserved"),
    (0xde94bba4_06d1_4d40_a16a_bfd50179d6ac, "Windows recovery"),
    (0x5808c8aa_7e8f_42e0_85d2_e1e90434cfb3, "Windows LDM metadata"),
    (0xaf9b60a0_1431_4f62_bc68_3311714a69ad, "Windows LDM data"),
    (0xe75caf8f_f680_4cee_afa3_b001e56efc2d, "Windows storage spaces"),
    (0x0fc63daf_8483_4772_8e79_3d69d8477de4, "Linux filesystem"),
    (0xa19d880f_05fc_4d3b_a006_743f0f84911e, "Linux RAID"),
    (0xe6d6d379_f507_44c2_a23c_238f2a3df928, "Linux LVM"),
    (0xca7d7ccb_63ed_4c53_861c_1742536059cc, "Linux LUKS"),
    (0x7ffec5c9_2d00_49b7_8941_3ea10a5586b7, "Linux dm-crypt"),
    (0x8da63339_0007_60c0_c436_083ac8230908, "Linux reserved"),
    (0x0657fd6d_a4ab_43c4_84e5_0933c84b4f4f, "Linux swap"),
    (0xbc13c2ff_59e6_4262_a352_b275fd6f7172, "Linux extended boot"),
    (0x933ac7e1_2eb4_4f13_b844_0e14e2aef915, "Linux home"),
    (0x3b8f8425_20e0_4f3b_907f_1a25a76f98e8, "Linux srv"),
    (0x4d21b016_b534_45c2_a9fb_5c16e091fd2d, "Linux var"),
    (0x7ec6f557_3bc5_4aca_b293_16ef5df639d1, "Linux tmp"),
    (0x773f91ef_66d4_49b5_bd83_d683bf40ad16, "Linux user's home"),
    (0x4f68bce3_e8cd_4db1_96e7_fbcaf984b709, "Linux root (x86-64)"),
    (0x44479540_f297_41b2_9af7_d131d5f0458a, "Linux root (x86)"),
    (0xb921b045_1df0_41c3_af44_4c6f280d3fae, "Linux root (ARM64)"),
    (0x69dad710_2ce4_4e3c_b16c_21a1d49abed3, "Linux root (ARM)"),
    (0x72ec70a6_cf74_40e6_bd49_4bda08e8f224, "Linux root (RISC-V 64)"),
    (0x60d5a7fe_8e7d_435c_b714_3dd8162144e1, "Linux root (RISC-V 32)"),
    (0x993d8d3d_f80e_4225_855a_9daf8ed7ea97, "Linux root (IA-64)"),
    (0x77055800_792c_4f94_b39a_98c91b762bb6, "Linux root (LoongArch 64)"),
    (0x1de3f1ef_fa98_47b5_8dcd_4a860a654d78, "Linux root (PowerPC)"),
    (0x912ade1d_a839_4913_8964_a10eee08fbd2, "Linux root (PowerPC 64)"),
    (0xc31c45e6_3f39_412e_80fb_4809c4980599, "Linux root (PowerPC 64 LE)"),
    (0x5eead9a9_fe09_4a1e_a1d7_520d00531306, "Linux root (S390x)"),
    (0x2c7357ed_ebd2_46d9_aec1_23d437ec2bf5, "Linux root verity (x86-64)"),
    (0xd13c5d3b_b5d1_422a_b29f_9454fdc89d76, "Linux root verity (x86)"),
    (0xdf3300ce_d69f_4c92_978c_9bfb0f38d820, "Linux root verity (ARM64)"),
    (0x7386cdf2_203c_47a9_a498_f2ecce45a2d6, "Linux root verity (ARM)"),
    (0xb6ed5582_440b_4209_b8da_5ff7c419ea3d, "Linux root verity (RISC-V 64)"),
    (0xae0253be_1167_4007_ac68_43926c14c5de, "Linux root verity (RISC-V 32)"),
    (0x86ed10d5_b607_45bb_8957_d350f23d0571, "Linux root verity (IA-64)"),
    (0xf3393b22_e9af_4613_a948_9d3bfbd0c535, "Linux root verity (LoongArch 64)"),
    (0x98cfe649_1588_46dc_b2f0_add147424925, "Linux root verity (PowerPC)"),
    (0x9225a9a3_3c19_4d89_b4f6_eeff88f17631, "Linux root verity (PowerPC 64)"),
    (0x906bd944_4589_4aae_a4e4_dd983917446a, "Linux root verity (PowerPC 64 LE)"),
    (0xb325bfbe_c7be_4ab8_8357_139e652d2f6b, "Linux root verity (S390x)"),
    (0x41092b05_9fc8_4523_994f_2def0408b176, "Linux root verity signature (x86-64)"),
    (0x5996fc05_109c_48de_808b_23fa0830b676, "Linux root verity signature (x86)"),
    (0x6db69de6_29f4_4758_a7a5_962190f00ce3, "Linux root verity signature (ARM64)"),
    (0x42b0455f_eb11_491d_98d3_56145ba9d037, "Linux root verity signature (ARM)"),
    (0xefe0f087_ea8d_4469_821a_4c2a96a8386a, "Linux root verity signature (RISC-V 64)"),
    (0x3a112a75_8729_4380_b4cf_764d79934448, "Linux root verity signature (RISC-V 32)"),
    (0xe98b36ee_32ba_4882_9b12_0ce14655f46a, "Linux root verity signature (IA-64)"),
    (0x5afb67eb_ecc8_4f85_ae8e_ac1e7c50e7d0, "Linux root verity signature (LoongArch 64)"),
    (0x1b31b5aa_add9_463a_b2ed_bd467fc857e7, "Linux root verity signature (PowerPC)"),
    (0xf5e2c20c_45b2_4ffa_bce9_2a60737e1aaf, "Linux root verity signature (PowerPC 64)"),
    (0xd4a236e7_e873_4c07_bf1d_bf6cf7f1c3c6, "Linux root verity signature (PowerPC 64 LE)"),
    (0xc80187a5_73a3_491a_901a_017c3fa953e9, "Linux root verity signature (S390x)"),
    (0x8484680c_9521_48c6_9c11_b0720656f69e, "Linux usr (x86-64)"),
    (0x75250d76_8cc6_458e_bd66_bd47cc81a812, "Linux usr (x86)"),
    (0xb0e01050_ee5f_4390_949a_9101b17104e9, "Linux usr (ARM64)"),
    (0x7d0359a3_02b3_4f0a_865c_654403e70625, "Linux usr (ARM)"),
    (0xbeaec34b_8442_439b_a40b_984381ed097d, "Linux usr (RISC-V 64)"),
    (0xb933fb22_5c3f_4f91_af90_e2bb0fa50702, "Linux usr (RISC-V 32)"),
    (0x4301d2a6_4e3b_4b2a_bb94_9e0b2c4225ea, "Linux usr (IA-64)"),
    (0xe611c702_575c_4cbe_9a46_434fa0bf7e3f, "Linux usr (LoongArch 64)"),
    (0x7d14fec5_cc71_415d_9d6c_06bf0b3c3eaf, "Linux usr (PowerPC)"),
    (0x2c9739e2_f068_46b3_9fd0_01c5a9afbcca, "Linux usr (PowerPC 64)"),
    (0x15bb03af_77e7_4d4a_b12b_c0d084f7491c, "Linux usr (PowerPC 64 LE)"),
    (0x8a4f5770_50aa_4ed3_874a_99b710db6fea, "Linux usr (S390x)"),
    (0x77ff5f63_e7b6_4633_acf4_1565b864c0e6, "Linux usr verity (x86-64)"),
    (0x8f461b0d_14ee_4e81_9aa9_049b6fb97abd, "Linux usr verity (x86)"),
    (0x6e11a4e7_fbca_4ded_b9e9_e1a512bb664e, "Linux usr verity (ARM64)"),
    (0xc215d751_7bcd_4649_be90_6627490a4c05, "Linux usr verity (ARM)"),
    (0x8f1056be_9b05_47c4_81d6_be53128e5b54, "Linux usr verity (RISC-V 64)"),
    (0xcb1ee4e3_8cd0_4136_a0a4_aa61a32e8730, "Linux usr verity (RISC-V 32)"),
    (0x6a491e03_3be7_4545_8e38_83320e0ea880, "Linux usr verity (IA-64)"),
    (0xf46b2c26_59ae_48f0_9106_c50ed47f673d, "Linux usr verity (LoongArch 64)"),
    (0xdf765d00_270e_49e5_bc75_f47bb2118b09, "Linux usr verity (PowerPC)"),
    (0xbdb528a5_a259_475f_a87d_da53fa736a07, "Linux usr verity (PowerPC 64)"),
    (0xee2b9983_21e8_4153_86d9_b6901a54d1ce, "Linux usr verity (PowerPC 64 LE)"),
    (0x31741cc4_1a2a_4111_a581_e00b447d2d06, "Linux usr verity (S390x)"),
    (0xe7bb33fb_06cf_4e81_8273_e543b413e2e2, "Linux usr verity signature (x86-64)"),
    (0x974a71c0_de41_43c3_be5d_5c5ccd1ad2c0, "Linux usr verity signature (x86)"),
    (0xc23ce4ff_44bd_4b00_b2d4_b41b3419e02a, "Linux usr verity signature (ARM64)"),
    (0xd7ff812f_37d1_4902_a810_d76ba57b975a, "Linux usr verity signature (ARM)"),
    (0xd2f9000a_7a18_453f_b5cd_4d32f77a7b32, "Linux usr verity signature (RISC-V 64)"),
    (0xc3836a13_3137_45ba_b583_b16c50fe5eb4, "Linux usr verity signature (RISC-V 32)"),
    (0x8de58bc2_2a43_460d_b14e_a76e4a17b47f, "Linux usr verity signature (IA-64)"),
    (0xb024f315_d330_444c_8461_44bbde524e99, "Linux usr verity signature (LoongArch 64)"),
    (0x7007891d_d371_4a80_86a4_5cb875b9302e, "Linux usr verity signature (PowerPC)"),
    (0x0b888863_d7f8_4d9e_9766_239fce4d58af, "Linux usr verity signature (PowerPC 64)"),
    (0xc8bfbd1e_268e_4521_8bba_bf314c399557, "Linux usr verity signature (PowerPC 64 LE)"),
    (0x3f324816_667b_46ae_86ee_9b0c0c6c11b4, "Linux usr verity signature (S390x)"),
    (0xfe3a2a5d_4f32_41a7_b725_accc3285a309, "ChromeOS kernel"),
    (0x3cb8e202_3b7e_47dd_8a3c_7ff2a13cfcec, "ChromeOS root"),
    (0x2e0a753d_9e48_43b0_8337_b15192cb1b5e, "ChromeOS reserved"),
    (0x83bd6b9d_7f41_11dc_be0b_001560b84f0f, "FreeBSD boot"),
    (0x516e7cb4_6ecf_11d6_8ff8_00022d09712b, "FreeBSD disklabel"),
    (0x516e7cb5_6ecf_11d6_8ff8_00022d09712b, "FreeBSD swap"),
    (0x516e7cb6_6ecf_11d6_8ff8_00022d09712b, "FreeBSD UFS"),
    (0x516e7cba_6ecf_11d6_8ff8_00022d09712b, "FreeBSD ZFS"),
    (0x824cc7a0_36a8_11e3_890a_952519ad3f61, "OpenBSD data"),
    (0x49f48d5a_b10e_11dc_b99b_0019d1879648, "NetBSD FFS"),
    (0x49f48d32_b10e_11dc_b99b_0019d1879648, "NetBSD swap"),
    (0x48465300_0000_11aa_aa11_00306543ecac, "Apple HFS+"),
    (0x7c3457ef_0000_11aa_aa11_00306543ecac, "Apple APFS"),
    (0x426f6f74_0000_11aa_aa11_00306543ecac, "Apple boot"),
    (0x6a898cc3_1dd2_11b2_99a6_080020736631, "Solaris usr or ZFS"),
];

#[rustfmt::skip]
const NUMBERS: &[(u8, &str)] = &[
    (0x01, "FAT12"),
    (0x04, "FAT16 (small)"),
    (0x05, "extended"),
    (0x06, "FAT16"),
    (0x07, "NTFS or exFAT"),
    (0x0b, "FAT32"),
    (0x0c, "FAT32 (LBA)"),
    (0x0e, "FAT16 (LBA)"),
    (0x0f, "extended (LBA)"),
    (0x11, "hidden FAT12"),
    (0x17, "hidden NTFS or ISO 9660"),
    (0x1b, "hidden FAT32"),
    (0x1c, "hidden FAT32 (LBA)"),
    (0x27, "Windows recovery"),
    (0x39, "Plan 9"),
    (0x41, "PReP boot"),
    (0x63, "System V"),
    (0x82, "Linux swap"),
    (0x83, "Linux"),
    (0x84, "hibernation"),
    (0x85, "Linux extended"),
    (0x8e, "Linux LVM"),
    (0x9f, "BSD/OS"),
    (0xa5, "FreeBSD"),
    (0xa6, "OpenBSD"),
    (0xa8, "Darwin UFS"),
    (0xa9, "NetBSD"),
    (0xab, "Darwin boot"),
    (0xaf, "HFS or HFS+"),
    (0xbe, "Solaris boot"),
    (0xbf, "Solaris"),
    (0xda, "data without a file system"),
    (0xea, "Linux extended boot"),
    (0xeb, "BeOS"),
    (0xee, "GPT"),
    (0xef, "EFI system"),
    (0xfb, "VMware VMFS"),
    (0xfd, "Linux RAID"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_architecture_has_the_six_types_of_root_and_usr_partitions() {
        let known: Vec<&str> = PartitionType::known(Scheme::Gpt).collect();
        let is_suffixed = |name: &str| name.ends_with("-verity") || name.ends_with("-verity-sig");
        let architectures: Vec<&str> = known
            .iter()
            .filter(|name| !is_suffixed(name))
            .filter_map(|name| name.strip_prefix("root-").or(name.strip_prefix("usr-")))
            .collect();
        assert_eq!(architectures.len(), 24);
        for architecture in architectures {
            for (start, words) in [("root", "Linux root"), ("usr", "Linux usr")] {
                for (end, more) in
                    [("", " ("), ("-verity", " verity ("), ("-verity-sig", " verity signature (")]
                {
                    let name = format!("{start}-{architecture}{end}");
                    let found = PartitionType::parse(&name, Scheme::Gpt).unwrap_or_else(|| panic!("{name}"));
                    let text = found.to_string();
                    assert!(text.starts_with(&format!("{words}{more}")), "{name}: {text}");
                }
            }
        }
        for (index, (guid, _)) in GUIDS.iter().enumerate() {
            assert!(GUIDS[..index].iter().all(|(other, _)| other != guid), "{guid:#x}");
        }
    }
}
