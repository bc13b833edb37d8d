import datetime
import zoneinfo

zone = zoneinfo.ZoneInfo("America/New_York")
moment = datetime.datetime(2026, 7, 1, 12, tzinfo=zone)
assert moment.utcoffset() == datetime.timedelta(hours=-4), moment
assert "Europe/Berlin" in zoneinfo.available_timezones()
try:
    zoneinfo.ZoneInfo("Nowhere/Nothing")
except zoneinfo.ZoneInfoNotFoundError as error:
    assert "Nowhere/Nothing" in str(error)
