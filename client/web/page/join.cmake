# cmake -DSCRIPTS="a.js;b.js" -DOUT=DIR -P join.cmake: writes DIR/page.html, the page with its style and scripts in it, and
# DIR/web_page.c, which defines what web_page.h declares.
set(here ${CMAKE_CURRENT_LIST_DIR})
file(READ ${here}/page.html page)
file(READ ${here}/page.css style)
file(READ ${here}/uplot/uplot.iife.min.js uplot_script)
file(STRINGS ${here}/uplot/LICENSE copyright REGEX "^Copyright")
# To make the page small, this leaves out indentation and comments, and in scripts the spaces around operators outside of strings. So a
# regular expression in a script writes \x22 for a quotation mark, and \x20 for a space beside a bracket, a star, a percent sign or a hyphen.
function(shorten variable)
  string(REGEX REPLACE "/\\*([^*]|\\*[^/])*\\*/\n*" "" text "${${variable}}")
  string(REGEX REPLACE "(^|\n)[ \n]+" "\\1" text "${text}")
  string(REGEX REPLACE "[ \n]// [^\n]*" "" text "${text}")
  set(${variable} "${text}" PARENT_SCOPE)
endfunction()

set(script "")
foreach(name ${SCRIPTS})
  file(READ ${here}/${name} text)
  string(APPEND script "${text}")
endforeach()
shorten(style)
string(REPLACE "}\n" "}" style "${style}")
string(REGEX REPLACE "([:;{},]) +" "\\1" style "${style}")
string(REGEX REPLACE ";? +}" "}" style "${style}")
shorten(script)
string(REGEX REPLACE "[ \n]*(\"([^\"\\\n]|\\\\[^\n])*\"|[][{(),;=?:&|<>!+*%-]+)[ \n]*" "\\1" script "${script}")
string(REPLACE "@STYLE@" "${style}" page "${page}")
string(REPLACE "@SCRIPT@" "/* uPlot: MIT License, ${copyright} */\n${uplot_script}\n(() => {\n\"use strict\";\n${script}})();\n" page "${page}")
file(WRITE ${OUT}/page.html "${page}")
file(READ ${OUT}/page.html bytes HEX)
string(LENGTH "${bytes}" size)
math(EXPR size "${size} / 2")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE ${OUT}/web_page.c "#include \"client/web/page/web_page.h\"

const size_t web_page_size = ${size};
const unsigned char web_page_html[] = {${bytes}0};
")
