// The letters whose upper or title case is more than one character: Unicode's SpecialCasing.txt,
// version 14, its part without conditions. All else is in utf8proc.

#include <algorithm>
#include <array>

#include "atoll/text/jinja/case.h"

namespace atl::text::jinja {

namespace {

struct SpecialCase {
  char32_t letter;
  std::u16string_view upper;
  std::u16string_view title;
};

constexpr std::array<SpecialCase, 102> kSpecialCases = {{
    {0x00DF, u"SS", u"Ss"},
    {0x0149, u"\u02BCN", u"\u02BCN"},
    {0x01F0, u"J\u030C", u"J\u030C"},
    {0x0390, u"\u0399\u0308\u0301", u"\u0399\u0308\u0301"},
    {0x03B0, u"\u03A5\u0308\u0301", u"\u03A5\u0308\u0301"},
    {0x0587, u"\u0535\u0552", u"\u0535\u0582"},
    {0x1E96, u"H\u0331", u"H\u0331"},
    {0x1E97, u"T\u0308", u"T\u0308"},
    {0x1E98, u"W\u030A", u"W\u030A"},
    {0x1E99, u"Y\u030A", u"Y\u030A"},
    {0x1E9A, u"A\u02BE", u"A\u02BE"},
    {0x1F50, u"\u03A5\u0313", u"\u03A5\u0313"},
    {0x1F52, u"\u03A5\u0313\u0300", u"\u03A5\u0313\u0300"},
    {0x1F54, u"\u03A5\u0313\u0301", u"\u03A5\u0313\u0301"},
    {0x1F56, u"\u03A5\u0313\u0342", u"\u03A5\u0313\u0342"},
    {0x1F80, u"\u1F08\u0399", u"\u1F88"},
    {0x1F81, u"\u1F09\u0399", u"\u1F89"},
    {0x1F82, u"\u1F0A\u0399", u"\u1F8A"},
    {0x1F83, u"\u1F0B\u0399", u"\u1F8B"},
    {0x1F84, u"\u1F0C\u0399", u"\u1F8C"},
    {0x1F85, u"\u1F0D\u0399", u"\u1F8D"},
    {0x1F86, u"\u1F0E\u0399", u"\u1F8E"},
    {0x1F87, u"\u1F0F\u0399", u"\u1F8F"},
    {0x1F88, u"\u1F08\u0399", u"\u1F88"},
    {0x1F89, u"\u1F09\u0399", u"\u1F89"},
    {0x1F8A, u"\u1F0A\u0399", u"\u1F8A"},
    {0x1F8B, u"\u1F0B\u0399", u"\u1F8B"},
    {0x1F8C, u"\u1F0C\u0399", u"\u1F8C"},
    {0x1F8D, u"\u1F0D\u0399", u"\u1F8D"},
    {0x1F8E, u"\u1F0E\u0399", u"\u1F8E"},
    {0x1F8F, u"\u1F0F\u0399", u"\u1F8F"},
    {0x1F90, u"\u1F28\u0399", u"\u1F98"},
    {0x1F91, u"\u1F29\u0399", u"\u1F99"},
    {0x1F92, u"\u1F2A\u0399", u"\u1F9A"},
    {0x1F93, u"\u1F2B\u0399", u"\u1F9B"},
    {0x1F94, u"\u1F2C\u0399", u"\u1F9C"},
    {0x1F95, u"\u1F2D\u0399", u"\u1F9D"},
    {0x1F96, u"\u1F2E\u0399", u"\u1F9E"},
    {0x1F97, u"\u1F2F\u0399", u"\u1F9F"},
    {0x1F98, u"\u1F28\u0399", u"\u1F98"},
    {0x1F99, u"\u1F29\u0399", u"\u1F99"},
    {0x1F9A, u"\u1F2A\u0399", u"\u1F9A"},
    {0x1F9B, u"\u1F2B\u0399", u"\u1F9B"},
    {0x1F9C, u"\u1F2C\u0399", u"\u1F9C"},
    {0x1F9D, u"\u1F2D\u0399", u"\u1F9D"},
    {0x1F9E, u"\u1F2E\u0399", u"\u1F9E"},
    {0x1F9F, u"\u1F2F\u0399", u"\u1F9F"},
    {0x1FA0, u"\u1F68\u0399", u"\u1FA8"},
    {0x1FA1, u"\u1F69\u0399", u"\u1FA9"},
    {0x1FA2, u"\u1F6A\u0399", u"\u1FAA"},
    {0x1FA3, u"\u1F6B\u0399", u"\u1FAB"},
    {0x1FA4, u"\u1F6C\u0399", u"\u1FAC"},
    {0x1FA5, u"\u1F6D\u0399", u"\u1FAD"},
    {0x1FA6, u"\u1F6E\u0399", u"\u1FAE"},
    {0x1FA7, u"\u1F6F\u0399", u"\u1FAF"},
    {0x1FA8, u"\u1F68\u0399", u"\u1FA8"},
    {0x1FA9, u"\u1F69\u0399", u"\u1FA9"},
    {0x1FAA, u"\u1F6A\u0399", u"\u1FAA"},
    {0x1FAB, u"\u1F6B\u0399", u"\u1FAB"},
    {0x1FAC, u"\u1F6C\u0399", u"\u1FAC"},
    {0x1FAD, u"\u1F6D\u0399", u"\u1FAD"},
    {0x1FAE, u"\u1F6E\u0399", u"\u1FAE"},
    {0x1FAF, u"\u1F6F\u0399", u"\u1FAF"},
    {0x1FB2, u"\u1FBA\u0399", u"\u1FBA\u0345"},
    {0x1FB3, u"\u0391\u0399", u"\u1FBC"},
    {0x1FB4, u"\u0386\u0399", u"\u0386\u0345"},
    {0x1FB6, u"\u0391\u0342", u"\u0391\u0342"},
    {0x1FB7, u"\u0391\u0342\u0399", u"\u0391\u0342\u0345"},
    {0x1FBC, u"\u0391\u0399", u"\u1FBC"},
    {0x1FC2, u"\u1FCA\u0399", u"\u1FCA\u0345"},
    {0x1FC3, u"\u0397\u0399", u"\u1FCC"},
    {0x1FC4, u"\u0389\u0399", u"\u0389\u0345"},
    {0x1FC6, u"\u0397\u0342", u"\u0397\u0342"},
    {0x1FC7, u"\u0397\u0342\u0399", u"\u0397\u0342\u0345"},
    {0x1FCC, u"\u0397\u0399", u"\u1FCC"},
    {0x1FD2, u"\u0399\u0308\u0300", u"\u0399\u0308\u0300"},
    {0x1FD3, u"\u0399\u0308\u0301", u"\u0399\u0308\u0301"},
    {0x1FD6, u"\u0399\u0342", u"\u0399\u0342"},
    {0x1FD7, u"\u0399\u0308\u0342", u"\u0399\u0308\u0342"},
    {0x1FE2, u"\u03A5\u0308\u0300", u"\u03A5\u0308\u0300"},
    {0x1FE3, u"\u03A5\u0308\u0301", u"\u03A5\u0308\u0301"},
    {0x1FE4, u"\u03A1\u0313", u"\u03A1\u0313"},
    {0x1FE6, u"\u03A5\u0342", u"\u03A5\u0342"},
    {0x1FE7, u"\u03A5\u0308\u0342", u"\u03A5\u0308\u0342"},
    {0x1FF2, u"\u1FFA\u0399", u"\u1FFA\u0345"},
    {0x1FF3, u"\u03A9\u0399", u"\u1FFC"},
    {0x1FF4, u"\u038F\u0399", u"\u038F\u0345"},
    {0x1FF6, u"\u03A9\u0342", u"\u03A9\u0342"},
    {0x1FF7, u"\u03A9\u0342\u0399", u"\u03A9\u0342\u0345"},
    {0x1FFC, u"\u03A9\u0399", u"\u1FFC"},
    {0xFB00, u"FF", u"Ff"},
    {0xFB01, u"FI", u"Fi"},
    {0xFB02, u"FL", u"Fl"},
    {0xFB03, u"FFI", u"Ffi"},
    {0xFB04, u"FFL", u"Ffl"},
    {0xFB05, u"ST", u"St"},
    {0xFB06, u"ST", u"St"},
    {0xFB13, u"\u0544\u0546", u"\u0544\u0576"},
    {0xFB14, u"\u0544\u0535", u"\u0544\u0565"},
    {0xFB15, u"\u0544\u053B", u"\u0544\u056B"},
    {0xFB16, u"\u054E\u0546", u"\u054E\u0576"},
    {0xFB17, u"\u0544\u053D", u"\u0544\u056D"},
}};

const SpecialCase* find_special(char32_t letter) {
  const auto at = std::lower_bound(
      kSpecialCases.begin(), kSpecialCases.end(), letter,
      [](const SpecialCase& special, char32_t wanted) { return special.letter < wanted; });
  return at != kSpecialCases.end() && at->letter == letter ? &*at : nullptr;
}

}  // namespace

std::u16string_view special_upper(char32_t letter) {
  const SpecialCase* special = find_special(letter);
  return special == nullptr ? std::u16string_view() : special->upper;
}

std::u16string_view special_title(char32_t letter) {
  const SpecialCase* special = find_special(letter);
  return special == nullptr ? std::u16string_view() : special->title;
}

}  // namespace atl::text::jinja
