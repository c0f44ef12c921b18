"""Subscriptions and what they match: labels, ranges, boxes, and conjunctions."""

from veilcast import All, Box, Equal, Label, Publication, Range

weather = Publication((("topic", "weather"), ("lat", 48.1), ("lon", 11.6), ("temp", 21.5)), b"sunny")
trade = Publication((("topic", "stocks"), ("class", "tech"), ("price", 101.25)), b"sold")

interests = {
    "everything on weather": Label("weather"),
    "20 to 25 degrees": Range("temp", 20, 25),
    "near Munich": Box({"lat": (48, 49), "lon": (11, 12)}),
    "tech above 100": All(Equal("class", "tech"), Range("price", 100, None, low_open=True)),
}
for name, interest in interests.items():
    print(f"{name:24} weather: {interest.matches(weather)!s:6} trade: {interest.matches(trade)}")
