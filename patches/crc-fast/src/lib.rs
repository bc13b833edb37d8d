//! The cyclic redundancy checks of S3, without the tables of a hundred others (`patches/README.md`).
//!
//! Eight bytes are processed at a time, with a table for each of them. The sums are those of the catalogue of CRC
//! algorithms, <https://reveng.sourceforge.io/crc-catalogue/all.htm>: the compiler checks the values given there.

#![forbid(unsafe_code)]

/// The number of bytes that are processed at a time.
const STEP: usize = 8;

/// Sums of each byte in each of the places of a step.
type Tables = [[u64; 256]; STEP];

/// A checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CrcAlgorithm {
    /// CRC-32/ISCSI, which S3 calls CRC32C.
    Crc32Iscsi,
    /// CRC-32/ISO-HDLC, which S3 calls CRC32.
    Crc32IsoHdlc,
    /// CRC-64/NVME.
    Crc64Nvme,
}

/// The sum of bytes that are given in parts.
#[derive(Debug, Clone)]
pub struct Digest {
    tables: &'static Tables,
    /// The value that the sum starts with, and that is added at the end.
    ones: u64,
    sum: u64,
}

static ISCSI: Tables = tables(0x82f6_3b78);
static ISO_HDLC: Tables = tables(0xedb8_8320);
static NVME: Tables = tables(0x9a6c_9329_ac4b_c9b5);

impl Digest {
    /// Creates the sum of no bytes.
    pub const fn new(algorithm: CrcAlgorithm) -> Self {
        let (tables, ones) = match algorithm {
            CrcAlgorithm::Crc32Iscsi => (&ISCSI, u32::MAX as u64),
            CrcAlgorithm::Crc32IsoHdlc => (&ISO_HDLC, u32::MAX as u64),
            CrcAlgorithm::Crc64Nvme => (&NVME, u64::MAX),
        };
        Digest { tables, ones, sum: ones }
    }

    /// Adds bytes.
    pub const fn update(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        let mut sum = self.sum;
        while let Some((step, following)) = rest.split_first_chunk::<STEP>() {
            let word = sum ^ u64::from_le_bytes(*step);
            sum = 0;
            let mut place = 0;
            while place < STEP {
                sum ^= self.tables[STEP - 1 - place][(word >> (8 * place)) as usize & 0xff];
                place += 1;
            }
            rest = following;
        }
        while let [byte, following @ ..] = rest {
            sum = sum >> 8 ^ self.tables[0][(sum as u8 ^ *byte) as usize];
            rest = following;
        }
        self.sum = sum;
    }

    /// Returns the sum, in the low bits if it has 32.
    pub const fn finalize(&self) -> u64 {
        self.sum ^ self.ones
    }
}

/// Returns the tables for a polynomial, whose highest power is its lowest bit.
const fn tables(polynomial: u64) -> Tables {
    let mut tables = [[0; 256]; STEP];
    let mut byte = 0;
    while byte < 256 {
        let mut sum = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            sum = sum >> 1 ^ (sum & 1) * polynomial;
            bit += 1;
        }
        tables[0][byte] = sum;
        byte += 1;
    }
    let mut place = 1;
    while place < STEP {
        let mut byte = 0;
        while byte < 256 {
            let sum = tables[place - 1][byte];
            tables[place][byte] = sum >> 8 ^ tables[0][sum as usize & 0xff];
            byte += 1;
        }
        place += 1;
    }
    tables
}

/// Returns the sum of two parts of `123456789`, the input of the catalogue, repeated three times.
const fn checked(algorithm: CrcAlgorithm, split: usize) -> (u64, u64) {
    let (mut once, mut thrice) = (Digest::new(algorithm), Digest::new(algorithm));
    once.update(b"123456789");
    let (first, second) = b"123456789123456789123456789".split_at(split);
    thrice.update(first);
    thrice.update(second);
    (once.finalize(), thrice.finalize())
}

const _: () = {
    assert!(checked(CrcAlgorithm::Crc32Iscsi, 0).0 == 0xe306_9283);
    assert!(checked(CrcAlgorithm::Crc32IsoHdlc, 0).0 == 0xcbf4_3926);
    assert!(checked(CrcAlgorithm::Crc64Nvme, 0).0 == 0xae8b_1486_0a79_9888);
    let mut split = 0;
    while split < 28 {
        assert!(checked(CrcAlgorithm::Crc64Nvme, split).1 == checked(CrcAlgorithm::Crc64Nvme, 0).1);
        split += 1;
    }
};
