//! The calendar of `struct tm`: proleptic Gregorian, and always UTC.
//!
//! Invariant: every `i64` and every content of a `struct tm` has a result; no operation overflows.

use crate::Errno;
use crate::guest_memory::{GuestMemory, Ptr};

const SECONDS_A_DAY: i64 = 86_400;
/// The number of days in four hundred years, after which the calendar repeats.
const DAYS_AN_ERA: i64 = 146_097;
/// The number of days from 0000-03-01, where an era begins, to 1970-01-01.
const DAYS_BEFORE_EPOCH: i64 = 719_468;

/// The fields of `struct tm` that depend on the time alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct BrokenDown {
    second: i32,
    minute: i32,
    hour: i32,
    /// The day of the month, from 1.
    day: i32,
    /// The months since January.
    month: i32,
    /// The years since 1900.
    year: i32,
    /// The days since Sunday.
    weekday: i32,
    /// The days since 1 January.
    year_day: i32,
}

impl BrokenDown {
    /// Breaks down `time`, in seconds since 1970; returns `None` if the year does not fit `tm_year`.
    pub(crate) fn from_seconds(time: i64) -> Option<Self> {
        let days = time.div_euclid(SECONDS_A_DAY);
        let second = time.rem_euclid(SECONDS_A_DAY);

        // Years start in March here, so that the leap day is the last of its year.
        let shifted = days + DAYS_BEFORE_EPOCH;
        let era = shifted.div_euclid(DAYS_AN_ERA);
        let day_of_era = shifted.rem_euclid(DAYS_AN_ERA);
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let month = (month_from_march + 2) % 12;
        let year = era * 400 + year_of_era + i64::from(month < 2);

        let narrow = |value: i64| i32::try_from(value).ok();
        Some(Self {
            second: narrow(second % 60)?,
            minute: narrow(second / 60 % 60)?,
            hour: narrow(second / 3600)?,
            day: narrow(day_of_year - (153 * month_from_march + 2) / 5 + 1)?,
            month: narrow(month)?,
            year: narrow(year - 1900)?,
            weekday: narrow((days + 4).rem_euclid(7))?,
            year_day: narrow(days - days_to(year, 0, 1))?,
        })
    }

    /// Returns the seconds since 1970. Fields may be out of range, as `mktime` allows; weekday and day of the year are
    /// ignored.
    pub(crate) fn to_seconds(self) -> i64 {
        days_to(i64::from(self.year) + 1900, i64::from(self.month), i64::from(self.day)) * SECONDS_A_DAY
            + i64::from(self.hour) * 3600
            + i64::from(self.minute) * 60
            + i64::from(self.second)
    }

    /// Reads a `struct tm`.
    pub(crate) fn read(memory: &GuestMemory<'_>, tm: Ptr) -> Result<Self, Errno> {
        let bytes: [u8; 32] = memory.array(tm)?;
        let mut fields = bytes.as_chunks::<4>().0.iter().map(|&field| i32::from_le_bytes(field));
        let mut next = || fields.next().unwrap_or_default();
        Ok(Self {
            second: next(),
            minute: next(),
            hour: next(),
            day: next(),
            month: next(),
            year: next(),
            weekday: next(),
            year_day: next(),
        })
    }

    /// Writes a `struct tm`, without daylight saving time and offset from UTC. libc sets `tm_zone` itself.
    pub(crate) fn write(self, memory: &mut GuestMemory<'_>, tm: Ptr) -> Result<(), Errno> {
        let (daylight_saving, offset) = (0, 0);
        let fields = [
            self.second,
            self.minute,
            self.hour,
            self.day,
            self.month,
            self.year,
            self.weekday,
            self.year_day,
            daylight_saving,
            offset,
        ];
        memory.write(tm, fields.map(i32::to_le_bytes).as_flattened())
    }
}

/// Returns the days from 1970-01-01 to a day whose month, counted from 0, and day of the month, counted from 1, may be
/// out of range. The arguments come from 32-bit fields.
fn days_to(year: i64, month: i64, day: i64) -> i64 {
    let year = year + month.div_euclid(12);
    let month = month.rem_euclid(12);
    let year = year - i64::from(month < 2);
    let month_from_march = (month + 10) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    era * DAYS_AN_ERA + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - DAYS_BEFORE_EPOCH
}

#[cfg(test)]
mod tests {
    use super::*;

    fn date(time: i64) -> (i32, i32, i32, i32, i32) {
        let tm = BrokenDown::from_seconds(time).unwrap();
        (tm.year + 1900, tm.month + 1, tm.day, tm.weekday, tm.year_day)
    }

    #[test]
    fn known_dates_are_broken_down_correctly() {
        assert_eq!(date(0), (1970, 1, 1, 4, 0));
        assert_eq!(date(-1), (1969, 12, 31, 3, 364));
        assert_eq!(date(951_782_400), (2000, 2, 29, 2, 59));
        assert_eq!(date(4_107_542_400), (2100, 3, 1, 1, 59));
        assert_eq!(date(-62_167_219_200), (0, 1, 1, 6, 0));
        assert_eq!(date(253_402_300_799), (9999, 12, 31, 5, 364));
    }

    #[test]
    fn every_day_of_eight_hundred_years_round_trips() {
        let mut before = date(-400 * 366 * SECONDS_A_DAY);
        for day in -400 * 366 + 1..400 * 366 {
            let time = day * SECONDS_A_DAY + 12_345;
            let tm = BrokenDown::from_seconds(time).unwrap();
            assert_eq!(tm.to_seconds(), time);
            let now = date(time);
            assert_eq!(now.3, (before.3 + 1) % 7);
            assert!((now.0, now.1, now.2) > (before.0, before.1, before.2));
            assert_eq!(now.4, if now.0 == before.0 { before.4 + 1 } else { 0 });
            before = now;
        }
    }

    #[test]
    fn extreme_times_and_fields_do_not_overflow() {
        for time in [i64::MIN, i64::MIN + 1, -1 << 60, 1 << 60, i64::MAX] {
            assert_eq!(BrokenDown::from_seconds(time), None);
        }
        for extreme in [i32::MIN, i32::MAX] {
            let tm = BrokenDown {
                second: extreme,
                minute: extreme,
                hour: extreme,
                day: extreme,
                month: extreme,
                year: extreme,
                ..BrokenDown::default()
            };
            assert_eq!(tm.to_seconds() > 0, extreme > 0);
        }
    }

    #[test]
    fn fields_out_of_range_are_carried() {
        // 1999, month 14 (March 2000), day 0 (29 February), hour -1 (23 of the 28th), minute 60, second 61.
        let tm = BrokenDown { second: 61, minute: 60, hour: -1, day: 0, month: 14, year: 99, ..BrokenDown::default() };
        let normal = BrokenDown::from_seconds(tm.to_seconds()).unwrap();
        assert_eq!((normal.year, normal.month, normal.day), (100, 1, 29));
        assert_eq!((normal.hour, normal.minute, normal.second), (0, 1, 1));
    }
}
