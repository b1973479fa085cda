//! The results of the rounds of a measurement.

/// A value for each round.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Rounds(Vec<f64>);

impl Rounds {
    pub(crate) fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// The value in the middle; of an even number, the mean of the two.
    pub(crate) fn median(&self) -> f64 {
        let mut values = self.0.clone();
        values.sort_by(f64::total_cmp);
        let half = values.len() / 2;
        match (values.len() % 2, values.get(half)) {
            (_, None) => f64::NAN,
            (0, Some(upper)) => f64::midpoint(values[half - 1], *upper),
            (_, Some(middle)) => *middle,
        }
    }

    pub(crate) fn least(&self) -> f64 {
        self.0.iter().copied().fold(f64::INFINITY, f64::min)
    }

    pub(crate) fn most(&self) -> f64 {
        self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The distance of the farthest round from the median, as a fraction of it.
    pub(crate) fn spread(&self) -> f64 {
        let median = self.median();
        (self.most() - median).max(median - self.least()) / median
    }

    /// The ratio, round by round: other load on the machine affects both sides of a round, and
    /// cancels out.
    pub(crate) fn over(&self, other: &Self) -> Self {
        self.with(other, |ours, theirs| ours / theirs)
    }

    pub(crate) fn minus(&self, other: &Self) -> Self {
        self.with(other, |ours, theirs| ours - theirs)
    }

    pub(crate) fn map(&self, change: impl Fn(f64) -> f64) -> Self {
        self.0.iter().copied().map(change).collect()
    }

    fn with(&self, other: &Self, both: impl Fn(f64, f64) -> f64) -> Self {
        self.0.iter().zip(&other.0).map(|(ours, theirs)| both(*ours, *theirs)).collect()
    }

    /// The median with its spread, for a table.
    pub(crate) fn show(&self) -> String {
        match self.len() {
            0 => "–".to_owned(),
            1 => number(self.median()),
            _ if self.median() == 0.0 => number(0.0),
            _ => format!("{} ±{:.0} %", number(self.median()), self.spread() * 100.0),
        }
    }
}

impl FromIterator<f64> for Rounds {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        Self(values.into_iter().collect())
    }
}

impl From<f64> for Rounds {
    fn from(value: f64) -> Self {
        Self(vec![value])
    }
}

/// A number with three significant digits.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    if size >= 1000.0 {
        let unit = 10_f64.powf(size.log10().floor() - 2.0);
        grouped((value / unit).round() * unit)
    } else if !(0.005..100.0).contains(&size) {
        format!("{value:.0}")
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

/// A whole number with a comma after every three digits.
pub(crate) fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut shown = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            shown.push(',');
        }
        shown.push(digit);
    }
    if value < 0.0 { format!("-{shown}") } else { shown }
}

#[cfg(test)]
mod facts {
    use super::*;

    #[test]
    fn median_is_the_middle_or_between_the_two_in_the_middle() {
        assert_eq!(Rounds::from_iter([9.0, 1.0, 2.0]).median(), 2.0);
        assert_eq!(Rounds::from_iter([9.0, 1.0, 2.0, 4.0]).median(), 3.0);
        assert!(Rounds::default().median().is_nan());
    }

    #[test]
    fn spread_is_that_of_the_farthest_round() {
        assert_eq!(Rounds::from_iter([8.0, 10.0, 11.0]).spread(), 0.2);
        assert_eq!(Rounds::from_iter([8.0, 10.0, 11.0]).show(), "10.0 ±20 %");
        assert_eq!(Rounds::from(10.0).show(), "10.0");
    }

    #[test]
    fn ratio_is_taken_within_each_round() {
        let (ours, theirs) = (Rounds::from_iter([10.0, 40.0, 90.0]), Rounds::from_iter([5.0, 10.0, 30.0]));
        assert_eq!(ours.over(&theirs), Rounds::from_iter([2.0, 4.0, 3.0]));
    }

    #[test]
    fn number_has_three_digits_that_count() {
        let shown = [53_512.0, 1_234_567.0, 999.6, 123.4, 12.34, 1.234, 0.001, -1_500.4].map(number);
        assert_eq!(shown, ["53,500", "1,230,000", "1000", "123", "12.3", "1.23", "0", "-1,500"]);
    }
}
