//! Fifty cells of a data analysis by a model: a table, a mistake and its correction, figures and files.

use serde_json::{Value, json};

use super::Session;

/// The cells, each with its expected value, part of its output (`~`), error (`!`) or files (`+`).
const CELLS: &[(&str, &str)] = &[
    ("import csv, io, json, math, statistics, collections, datetime, re, os", ""),
    ("os.listdir()", "['sales.csv']"),
    ("rows = list(csv.DictReader(open('sales.csv')))", ""),
    ("len(rows)", "120"),
    ("rows[0]", "{'day': '2024-01-01', 'city': 'Rome', 'amount': '10.5', 'items': '1'}"),
    ("rows[0]['amount'] * 2", "'10.510.5'"),
    ("sum(row['amount'] for row in rows)", "!TypeError: unsupported operand"),
    ("for row in rows:\n    row['amount'] = float(row['amount'])\n    row['items'] = int(row['items'])", ""),
    ("total = sum(row['amount'] for row in rows)\nround(total, 2)", "8400.0"),
    (
        "cities = collections.Counter(row['city'] for row in rows)\ncities.most_common()",
        "[('Rome', 40), ('Oslo', 40), ('Lima', 40)]",
    ),
    ("by_city = collections.defaultdict(list)\nfor row in rows: by_city[row['city']].append(row['amount'])", ""),
    (
        "{city: round(statistics.mean(amounts), 3) for city, amounts in by_city.items()}",
        "{'Rome': 69.0, 'Oslo': 70.0, 'Lima': 71.0}",
    ),
    (
        "def table(data, heads):\n    widths = [max(len(str(x)) for x in [head, *column]) for head, column in zip(heads, zip(*data))]\n    line = lambda cells: '  '.join(str(c).rjust(w) for c, w in zip(cells, widths))\n    return '\\n'.join([line(heads), *map(line, data)])",
        "",
    ),
    ("print(table([(c, len(a), max(a)) for c, a in by_city.items()], ['city', 'n', 'max']))", "~Rome  40  127.5"),
    ("best = max(rows, key=lambda row: row['amount'])\nbest['city'], best['amount']", "('Lima', 129.5)"),
    ("%who_ls dict", "['best', 'row']"),
    (
        "days = [datetime.date.fromisoformat(row['day']) for row in rows]\n(min(days), max(days))",
        "(datetime.date(2024, 1, 1), datetime.date(2024, 4, 29))",
    ),
    (
        "months = collections.Counter(day.strftime('%Y-%m') for day in days)\nmonths",
        "Counter({'2024-01': 31, '2024-03': 31, '2024-02': 29, '2024-04': 29})",
    ),
    (
        "monthly = {m: sum(r['amount'] for r in rows if r['day'].startswith(m)) for m in months}\nmonthly['2024-05']",
        "!KeyError: '2024-05'",
    ),
    ("monthly['2024-04']", "3349.5"),
    ("xs = [(day - days[0]).days for day in days]\nys = [row['amount'] for row in rows]", ""),
    (
        "def fit(xs, ys):\n    mx, my = statistics.mean(xs), statistics.mean(ys)\n    b = sum((x - mx) * (y - my) for x, y in zip(xs, ys)) / sum((x - mx) ** 2 for x in xs)\n    return b, my - b * mx",
        "",
    ),
    ("slope, start = fit(xs, ys)\n(round(slope, 4), round(start, 4))", "(1.0, 10.5)"),
    ("fit([1], [1])", "!ZeroDivisionError: "),
    (
        "def fit(xs, ys):\n    if len(set(xs)) < 2:\n        raise ValueError('two different days are needed')\n    slope, start = statistics.linear_regression(xs, ys)\n    return slope, start",
        "",
    ),
    ("fit([1], [1])", "!ValueError: two different days are needed"),
    ("[round(v, 6) for v in fit(xs, ys)]", "[1.0, 10.5]"),
    (
        "residuals = [y - (slope * x + start) for x, y in zip(xs, ys)]\nmath.isclose(max(residuals), 0, abs_tol=1e-9)",
        "True",
    ),
    ("_", "True"),
    ("%%time\nsquares = sum(x * x for x in range(10_000))", "~Wall time"),
    ("squares", "333283335000"),
    ("from IPython.display import HTML, SVG, display", ""),
    (
        "def bars(data, height=100):\n    top = max(data.values())\n    boxes = ''.join(f'<rect x=\"{20 * i}\" y=\"{height - height * v / top:.1f}\" width=\"15\" height=\"{height * v / top:.1f}\"/>' for i, v in enumerate(data.values()))\n    return f'<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{20 * len(data)}\" height=\"{height}\">{boxes}</svg>'",
        "",
    ),
    ("picture = bars(monthly)\nSVG(picture)", "+inline_35_1.svg"),
    ("open('monthly.svg', 'w').write(picture) > 100", "+monthly.svg"),
    ("HTML('<table><tr><td>1</td></tr></table>')", "<IPython.core.display.HTML object>"),
    (
        "class Report:\n    def __init__(self, data): self.data = data\n    def _repr_html_(self): return '<p>' + json.dumps(self.data) + '</p>'\n    def __repr__(self): return f'Report({self.data})'",
        "",
    ),
    ("Report({'n': 3})", "Report({'n': 3})"),
    (
        "os.makedirs('out', exist_ok=True)\nwith open('out/monthly.csv', 'w', newline='') as file:\n    csv.writer(file).writerows(monthly.items())",
        "+out/monthly.csv",
    ),
    ("!cat out/monthly.csv", "~2024-01,790.5"),
    ("json.dump(monthly, open('out/monthly.json', 'w'), indent=1)", "+out/monthly.json"),
    ("!ls out", "~monthly.csv\nmonthly.json"),
    (
        "import asyncio\nasync def fetch(n):\n    await asyncio.sleep(0.001)\n    return n * n\nawait asyncio.gather(*map(fetch, range(5)))",
        "[0, 1, 4, 9, 16]",
    ),
    (
        "import sqlite3\ndb = sqlite3.connect('sales.db')\ndb.execute('create table sales (day, city, amount)')\ndb.executemany('insert into sales values (:day, :city, :amount)', rows)\ndb.commit()",
        "+sales.db",
    ),
    (
        "db.execute('select city, count(*), sum(amount) from sales group by city order by 1').fetchall()",
        "[('Lima', 40, 2840.0), ('Oslo', 40, 2800.0), ('Rome', 40, 2760.0)]",
    ),
    ("db.execute('select profit from sales')", "!OperationalError: no such column: profit"),
    ("db.close()", ""),
    (
        "import zipfile\nwith zipfile.ZipFile('results.zip', 'w') as archive:\n    for name in ['out/monthly.csv', 'out/monthly.json', 'monthly.svg']:\n        archive.write(name)",
        "+results.zip",
    ),
    ("zipfile.ZipFile('results.zip').namelist()", "['out/monthly.csv', 'out/monthly.json', 'monthly.svg']"),
    ("print(f'{len(In) - 1} cells'); len(Out) > 20", "True"),
];

/// Returns a table with a row for each day and city; amounts grow by one a day.
fn sales() -> String {
    let mut text = String::from("day,city,amount,items\n");
    let months = [(1, 31), (2, 29), (3, 31), (4, 29)];
    let days = months.iter().flat_map(|(month, days)| (1..=*days).map(move |day| format!("2024-{month:02}-{day:02}")));
    for (n, day) in days.enumerate() {
        let city = ["Rome", "Oslo", "Lima"][n % 3];
        text.push_str(&format!("{day},{city},{},{}\n", n as f64 + 10.5, n % 7 + 1));
    }
    text
}

#[test]
fn fifty_cells_of_an_analysis() {
    assert_eq!(CELLS.len(), 50);
    let mut session = Session::start([]);
    session.tool("upload_file", json!({ "name": "sales.csv", "content": sales() }));
    let mut wrong = Vec::new();
    for (number, (code, wanted)) in (2..).zip(CELLS) {
        let answer = session.run(code);
        let fits = match wanted.split_at_checked(1) {
            Some(("!", error)) => answer["error"].as_str().is_some_and(|text| text.starts_with(error)),
            Some(("~", part)) => super::joined(&answer["output"]).contains(part),
            Some(("+", name)) => answer["files"].as_array().unwrap().iter().any(|file| file["name"] == name),
            Some(_) => answer["result"] == *wanted,
            None => answer["success"] == true,
        };
        if !fits {
            wrong.push(format!("cell {number}: {code}\nwanted {wanted}\n{answer:#}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    let uri = format!("kernel://{}/results.zip", session.id);
    let read = session.wire.ask("resources/read", json!({ "uri": uri }));
    assert!(read["result"]["contents"][0]["blob"].as_str().unwrap().starts_with("UEsDB"), "{read:#}");
    let listed = session.tool("list_session_files", json!({}));
    let names: Vec<&Value> = listed["files"].as_array().unwrap().iter().map(|file| &file["name"]).collect();
    assert_eq!(names.len(), 7, "{names:?}");
}
