//! Live and reserved bytes over time, for one trace: with ample memory and under pressure.

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;

use super::configuration::Configuration;
use super::report::{Run, TraceReport};

const WIDTH: u32 = 1200;
const PANEL: u32 = 420;

/// Draws an SVG.
///
/// # Errors
/// When the file can't be written.
pub fn draw(trace: &TraceReport, path: &Path) -> Result<()> {
    let mut panels: Vec<(String, Vec<(Configuration, &Run)>)> = vec![(
        format!("{}: ample memory", trace.name),
        trace
            .configurations
            .iter()
            .map(|(configuration, measured)| (*configuration, &measured.ample))
            .collect(),
    )];
    for tight in &trace.tight {
        panels.push((
            format!(
                "{}: {:.4} × peak live",
                trace.name,
                tight.capacity as f64 / trace.peak_live as f64
            ),
            tight.runs.iter().map(|(it, run)| (*it, run)).collect(),
        ));
    }
    panels.retain(|(_, runs)| !runs.is_empty());
    let height = PANEL * panels.len().max(1) as u32;
    let root = SVGBackend::new(path, (WIDTH, height)).into_drawing_area();
    let drawn = || -> Result<()> {
        root.fill(&WHITE).map_err(plain)?;
        let areas = root.split_evenly((panels.len().max(1), 1));
        for ((title, runs), area) in panels.iter().zip(&areas) {
            panel(area, title, runs)?;
        }
        root.present().map_err(plain)
    };
    drawn().with_context(|| format!("draw {}", path.display()))
}

fn panel(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    title: &str,
    runs: &[(Configuration, &Run)],
) -> Result<()> {
    let points = || runs.iter().flat_map(|(_, run)| &run.timeline);
    let last = points().map(|point| point[0]).max().unwrap_or(1);
    let top = points().map(|point| point[2].max(point[1])).max();
    let top = gib(top.unwrap_or(1)) * 1.05;
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(32)
        .y_label_area_size(56)
        .build_cartesian_2d(0..last, 0.0..top)
        .map_err(plain)?;
    chart
        .configure_mesh()
        .x_desc("event")
        .y_desc("GiB")
        .light_line_style(TRANSPARENT)
        .draw()
        .map_err(plain)?;
    // Live bytes are the trace's own: those of the run that came furthest.
    let furthest = runs.iter().max_by_key(|(_, run)| run.timeline.len());
    if let Some((_, run)) = furthest {
        let live = run.timeline.iter().map(|point| (point[0], gib(point[1])));
        chart
            .draw_series(AreaSeries::new(live, 0.0, RGBColor(205, 205, 205)))
            .map_err(plain)?
            .label("live")
            .legend(|(x, y)| {
                Rectangle::new(
                    [(x, y - 5), (x + 18, y + 5)],
                    RGBColor(205, 205, 205).filled(),
                )
            });
    }
    for (configuration, run) in runs {
        let style = color(*configuration).stroke_width(2);
        let reserved = run.timeline.iter().map(|point| (point[0], gib(point[2])));
        let end = if run.completed() {
            ""
        } else {
            " (out of memory)"
        };
        chart
            .draw_series(LineSeries::new(reserved, style))
            .map_err(plain)?
            .label(format!("reserved, {}{end}", configuration.name()))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()
        .map_err(plain)
}

/// Colours that people who confuse red and green can tell apart (Okabe and Ito).
fn color(configuration: Configuration) -> RGBColor {
    match configuration {
        Configuration::StockDefault => RGBColor(213, 94, 0),
        Configuration::StockExpandable => RGBColor(230, 159, 0),
        Configuration::NpuallocDefault => RGBColor(0, 0, 0),
        Configuration::NpuallocFixed => RGBColor(204, 121, 167),
        Configuration::NpuallocExpandableAlias => RGBColor(86, 180, 233),
        Configuration::NpuallocExpandable => RGBColor(0, 114, 178),
    }
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

/// The library's errors carry borrowed parts of the picture.
fn plain(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("{error}")
}
